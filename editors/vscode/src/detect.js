// SASS or a style sheet: both have the suffix .sass. A source of ours has a line that begins with a directive or a block
// of ours, or with a control code; a style sheet has none of them. docs/editors.md has the same rules for other editors.
"use strict";

const LINES = 200;
const OURS = /^[ \t]*(?:\.(?:kernel|function)[ \t]+\S|<(?:regs|params|consts|smem|code)>|\[?[0-9A-Fa-f-]+:[\d-]:[\d-]:[-Yy]:)/m;

/** Whether the text of a .sass file is SASS. */
function isSass(text) {
  return OURS.test(text.split("\n", LINES).join("\n"));
}

module.exports = { isSass, LINES };
