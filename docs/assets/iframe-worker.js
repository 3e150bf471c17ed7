// A browser starts no worker from a file, and the theme's search is one. So where the site is opened as a file, the
// worker's script runs in a hidden frame that has a worker's three names: postMessage, importScripts, onmessage.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const url = new URL(script, location.href);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((done) => frame.addEventListener("load", () => done(frame.contentWindow)));
      const inside = `
        postMessage = (data) => parent.dispatchEvent(new MessageEvent("frame-worker", {data}));
        importScripts = (...all) => all.reduce((before, src) => before.then(() => new Promise((done) => {
          const script = Object.assign(document.createElement("script"), {src, onload: done});
          document.head.append(script);
        })), Promise.resolve());`;
      frame.srcdoc = `<base href="${new URL(".", url)}"><script>${inside}</script><script src="${url}"></script>`;
      window.addEventListener("frame-worker", ({ data }) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      });
      document.body.append(frame);
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
