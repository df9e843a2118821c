// @ts-check
/**
 * A step of `npm run build`: makes dist/page, the files that the inspector sends to a browser. The page's modules and its libraries are
 * one bundle, because a browser would request each module separately.
 */

import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { packageRoot } from "./testing/files.mjs";

const root = packageRoot(process.cwd());
const source = join(root, "src/inspect/page");
const built = join(root, "dist/page");
const require = createRequire(join(root, "package.json"));
const libraries = ["preact", "uplot"];

rmSync(built, { recursive: true, force: true });
mkdirSync(built, { recursive: true });
for (const name of ["index.html", "page.css", "icon.svg"])
  copyFileSync(join(source, name), join(built, name));
copyFileSync(join(packageFolder("uplot"), "dist/uPlot.min.css"), join(built, "uPlot.min.css"));
await build({
  entryPoints: [join(source, "main.tsx")],
  outdir: built,
  bundle: true,
  format: "esm",
  target: "es2023",
  minify: true,
  legalComments: "none",
  logLevel: "warning",
});
// The licences require the notice.
const notices = libraries.map((name) => {
  const folder = packageFolder(name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return `${name} ${version}, ${license} licence\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
});
writeFileSync(join(built, "licenses.txt"), notices.join(`\n${"-".repeat(78)}\n\n`));

/** @param {string} name */
function packageFolder(name) {
  return dirname(require.resolve(`${name}/package.json`));
}
