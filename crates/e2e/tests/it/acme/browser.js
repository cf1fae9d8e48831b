// A page in headless Chromium, which is led by its DevTools protocol. Prints one line of JSON.
"use strict";
const { spawn } = require("child_process");
// Each challenge gets the next login, USER:PASSWORD, and is declined when none is left.
const [chromium, url, flags, ...logins] = process.argv.slice(1);
const pipes = { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] };
const browser = spawn(chromium, ["--remote-debugging-pipe", ...flags.split("\n")], pipes);
const [toBrowser, fromBrowser] = [browser.stdio[3], browser.stdio[4]];
const say = (told) => { console.log(JSON.stringify(told)); process.exit(0); };
browser.on("exit", (code) => say({ error: `Chromium ended: ${code}` }));

const waiting = [];
const handlers = {};

function call(method, params = {}, sessionId) {
  toBrowser.write(JSON.stringify({ id: waiting.length, method, params, sessionId }) + "\0");
  return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
}

function handle({ id, method, params, result, error }) {
  if (id === undefined) handlers[method]?.(params);
  else if (error) waiting[id].reject(new Error(error.message));
  else waiting[id].resolve(result);
}

let input = "";
fromBrowser.setEncoding("utf8");
fromBrowser.on("data", (data) => {
  const messages = (input + data).split("\0");
  input = messages.pop();
  messages.forEach((message) => handle(JSON.parse(message)));
});

async function load() {
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  const page = (method, params) => call(method, params, sessionId);
  const challenges = [];
  handlers["Fetch.requestPaused"] = ({ requestId }) => page("Fetch.continueRequest", { requestId });
  handlers["Fetch.authRequired"] = ({ requestId, authChallenge }) => {
    challenges.push({ ...authChallenge, at: Date.now() });
    const [username, password] = logins.shift()?.split(":") ?? [];
    const response = username ? "ProvideCredentials" : "CancelAuth";
    page("Fetch.continueWithAuth", { requestId, authChallengeResponse: { response, username, password } });
  };
  const loaded = new Promise((resolve) => { handlers["Page.loadEventFired"] = resolve; });
  await page("Page.enable");
  await page("Fetch.enable", { handleAuthRequests: true });
  const { errorText } = await page("Page.navigate", { url });
  if (!errorText) await loaded;
  const shown = await page("Runtime.evaluate", { expression: "document.body.innerText" });
  say({ challenges, error: errorText, text: shown.result.value });
}

load().catch((error) => say({ error: String(error) }));
