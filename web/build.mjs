// Bundles the page into src/ncclscope/web/static, where it is committed; or into the directory that
// is named, so that a test can compare.

import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "../src/ncclscope/web/static");
mkdirSync(target, { recursive: true });
await build({
  entryPoints: [join(here, "src/app.ts")],
  outfile: join(target, "app.js"),
  bundle: true,
  minify: true,
  target: "es2021",
  charset: "utf8",
  legalComments: "none",
  logLevel: "error",
});
for (const name of ["index.html", "app.css"]) {
  copyFileSync(join(here, name), join(target, name));
}
