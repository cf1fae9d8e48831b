// A client of an HTTPS proxy by HTTP/2, on node's implementation. Prints one line of JSON.
"use strict";
const http2 = require("http2");
const [address, action, ...rest] = process.argv.slice(1);
// Node ends streams of a session that queues more megabytes than this: `stalled` queues 32.
const proxy = http2.connect(`https://${address}`, { rejectUnauthorized: false, maxSessionMemory: 100 });
const say = (told) => { console.log(JSON.stringify(told)); process.exit(0); };
proxy.on("error", (error) => say({ error: String(error) }));

function connect(target, login) {
  const fields = { ":method": "CONNECT", ":authority": target };
  if (login) fields["proxy-authorization"] = "Basic " + Buffer.from(login).toString("base64");
  return proxy.request(fields);
}

// Resolves with the status, the text, and how the stream has ended.
function whole(stream) {
  return new Promise((resolve) => {
    const told = { status: null, bytes: [], ended: false, error: null };
    const begun = Date.now();
    stream.on("response", (fields) => {
      told.status = fields[":status"];
      told.challenge = fields["proxy-authenticate"];
      told.after = Date.now() - begun;
    });
    stream.on("data", (data) => told.bytes.push(data));
    stream.on("end", () => { told.ended = true; });
    stream.on("error", (error) => { told.error = error.code; });
    stream.on("close", () => {
      told.code = stream.rstCode;
      told.bytes = Buffer.concat(told.bytes);
      resolve(told);
    });
  });
}

const answered = (stream) => new Promise((resolve, reject) => {
  stream.on("response", (fields) => resolve(fields[":status"]));
  stream.on("error", reject);
});

// Sends bytes on many streams at once, each to its end, and compares what comes back.
async function echo(login, target, count, length) {
  const streams = [];
  for (let number = 0; number < Number(count); number++) {
    const stream = connect(target, login);
    const payload = Buffer.alloc(Number(length), number + 1);
    stream.end(payload);
    streams.push(whole(stream).then((told) => told.ended && told.bytes.equals(payload)));
  }
  const equal = (await Promise.all(streams)).filter((it) => it).length;
  say({ alpn: proxy.alpnProtocol, equal });
}

// Asks for a tunnel once for each login, one after the other, on one connection.
async function status(target, ...logins) {
  const answers = [];
  for (const login of logins) {
    const told = await whole(connect(target, login === "none" ? null : login));
    const { status, challenge, after, ended, code } = told;
    answers.push({ status, challenge, after, ended, code, text: told.bytes.toString() });
  }
  say({ answers });
}

// Asks for another method than CONNECT.
async function get() {
  const told = await whole(proxy.request({ ":path": "/" }));
  say({ status: told.status, text: told.bytes.toString() });
}

// Fills streams to a target that reads nothing, and then uses another stream.
async function stalled(login, silent, target, count) {
  for (let number = 0; number < Number(count); number++) {
    const stream = connect(silent, login);
    await answered(stream);
    stream.write(Buffer.alloc(4 << 20));
  }
  await new Promise((resolve) => setTimeout(resolve, 300));
  const stream = connect(target, login);
  const payload = Buffer.alloc(2 << 20, 7);
  stream.end(payload);
  const told = await whole(stream);
  say({ equal: told.bytes.equals(payload), ended: told.ended });
}

// Reads from a target that resets the connection after a part.
async function cut(login, target) {
  const stream = connect(target, login);
  const ending = whole(stream);
  stream.write("1");
  stream.once("data", () => stream.write("2"));
  const told = await ending;
  say({ text: told.bytes.toString(), ended: told.ended, error: told.error, code: told.code });
}

// Resets a tunnel, and uses another one on the same connection.
async function cancel(login, target, other) {
  const stream = connect(target, login);
  stream.on("error", () => {});
  await answered(stream);
  // `close` would end its direction first.
  stream.destroy(new Error("cut"));
  const next = connect(other, login);
  next.end("x");
  const told = await whole(next);
  say({ text: told.bytes.toString() });
}

// Keeps a tunnel while the server drains. The server is asked to do so once this program has printed a line.
async function drain(login, target) {
  const stream = connect(target, login);
  await answered(stream);
  const goaway = new Promise((resolve) => proxy.on("goaway", (code, last) => resolve({ code, last })));
  console.log(JSON.stringify({ ready: true }));
  const { code, last } = await goaway;
  let refused = null;
  try { connect(target, login).on("error", () => {}); } catch (error) { refused = error.code; }
  stream.end("kept");
  const told = await whole(stream);
  say({ code, last, refused, text: told.bytes.toString(), ended: told.ended });
}

({ echo, status, get, stalled, cut, cancel, drain })[action](...rest).catch((error) => say({ error: String(error) }));
