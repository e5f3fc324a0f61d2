/** The page of the chat panel. Pure. */

/** Addresses of the page's files, and what its policy allows. */
export interface Sources {
  script: string;
  style: string;
  csp: string;
  nonce: string;
}

/** Nothing is loaded but the two files of the extension; no inline script, no image, no connection. */
export function page(sources: Sources): string {
  const policy = `default-src 'none'; style-src ${sources.csp}; script-src 'nonce-${sources.nonce}'`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="${sources.style}">
<title>Local chat</title>
</head>
<body>
<main id="log" role="log" aria-label="Conversation" tabindex="0"></main>
<form id="ask" aria-label="Ask the local model">
<button type="button" id="attach" class="chip" aria-pressed="false" hidden></button>
<textarea id="input" rows="2" aria-label="Question" placeholder="Ask the local model"></textarea>
<div class="row">
<button type="button" id="model" class="chip" title="Choose the model"></button>
<span class="space"></span>
<button type="button" id="clear" class="quiet" title="New chat">New chat</button>
<button type="button" id="stop" class="quiet" title="Stop (Escape)" hidden>Stop</button>
<button type="submit" id="send" title="Send (Enter)">Send</button>
</div>
</form>
<script nonce="${sources.nonce}" src="${sources.script}"></script>
</body>
</html>`;
}
