// Answers requests as the single-file page does, so that a test in Python can compare its server's answers.
// stdin: {data, requests: [[method, ...arguments], …]}; stdout: a list of answers.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const { outputFiles } = await build({
  entryPoints: [join(here, "../src/embedded.ts")],
  bundle: true,
  format: "esm",
  write: false,
});
const module = Buffer.from(outputFiles[0].contents).toString("base64");
const { EmbeddedSource } = await import(`data:text/javascript;base64,${module}`);
const { data, requests } = JSON.parse(readFileSync(0, "utf8"));
const source = new EmbeddedSource(data);
const answers = await Promise.all(requests.map(([method, ...parameters]) => source[method](...parameters)));
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
process.stdout.write(JSON.stringify(answers, plain));
