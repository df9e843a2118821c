// @ts-check
/**
 * A step of `npm run build`: completes the inspector's page. It copies the page's assets next to its
 * compiled modules, and replaces the names of libraries in them by paths of files. So the page runs in a
 * browser without a bundler, an import map or downloads.
 */

import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { packageRoot } from "./testing/files.mjs";

const root = packageRoot(process.cwd());
const source = join(root, "src/inspect/page");
const built = join(root, "dist/src/inspect/page");
const require = createRequire(join(root, "package.json"));

/** The specifier in a module, the library's file, and its name next to the page. */
const libraries = [
  { name: "preact", file: "dist/preact.mjs", as: "preact.js" },
  { name: "preact/hooks", file: "hooks/dist/hooks.mjs", as: "preact-hooks.js" },
  { name: "preact/jsx-runtime", file: "jsx-runtime/dist/jsxRuntime.mjs", as: "preact-jsx-runtime.js" },
  { name: "uplot", file: "dist/uPlot.esm.js", as: "uplot.js" },
];

/**
 * @param {string} code
 * @param {string} folder the relative path from the module's folder to the page's
 */
function withFiles(code, folder = ".") {
  return code.replace(/(\bfrom\s*|\bimport\s*)(["'])([^"'.][^"']*)\2/g, (whole, before, quote, name) => {
    const library = libraries.find((one) => one.name === name);
    return library ? `${before}${quote}${folder}/${library.as}${quote}` : whole;
  });
}

/** @param {string} name */
function packageFolder(name) {
  return dirname(require.resolve(`${name.split("/")[0]}/package.json`));
}

mkdirSync(built, { recursive: true });
for (const name of ["index.html", "page.css", "icon.svg"])
  copyFileSync(join(source, name), join(built, name));
copyFileSync(join(packageFolder("uplot"), "dist/uPlot.min.css"), join(built, "uPlot.min.css"));
for (const { name, file, as } of libraries) {
  const code = readFileSync(join(packageFolder(name), file), "utf8");
  // Source maps are not shipped.
  writeFileSync(join(built, as), withFiles(code).replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n"));
}
// The licences require the notice, and the minified files have lost it.
const notices = [...new Set(libraries.map(({ name }) => name.split("/")[0] ?? name))].map((name) => {
  const folder = packageFolder(name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return `${name} ${version}, ${license} licence\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
});
writeFileSync(join(built, "licenses.txt"), notices.join(`\n${"-".repeat(78)}\n\n`));
for (const name of readdirSync(built, { encoding: "utf8", recursive: true })) {
  if (!name.endsWith(".js") || name.endsWith(".test.js")) continue;
  const path = join(built, name);
  const code = readFileSync(path, "utf8");
  const changed = withFiles(code, relative(dirname(path), built) || ".");
  if (changed !== code) writeFileSync(path, changed);
}
