"""What an editor shows of a source: `turingas lsp` and the page that one tries it on are built of it."""
