// @ts-check
/**
 * A step of `npm run build`: makes JavaScript of the TypeScript sources. Node takes more than a millisecond to load a module, and
 * Holdfast has some eight hundred, so they are bundled.
 *
 *   dist/lib/             what the package's users load
 *   dist/modules/         one bundle of all modules, for programs that use internal modules next to the public API
 *   dist/src/             a file for each module, which exports its names from dist/modules: tests and benchmarks import these, by
 *                         their paths or by the condition "holdfast-source" of package.json
 *   dist/test/ and so on  the other sources, compiled one by one
 */

import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, sep } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { packageRoot } from "./testing/files.mjs";

const root = packageRoot(process.cwd());

/** The scripts of threads and processes. The code looks for a script next to itself, so a script keeps its name. */
const scripts = [
  "cli/main",
  "data/parquet/decode-thread",
  "data/sample-thread",
  "distributed/peers/peer-thread",
  "distributed/trial-process",
  "driver/cpu/cpu-worker",
  "driver/cuda/compile-thread",
  "inspect/inspector-thread",
  "runtime/observe/watchdog/watchdog-process",
  "runtime/observe/watchdog/watchdog-thread",
  "train/stopping/stop-thread",
];

/** @type {import("esbuild").BuildOptions} */
const common = {
  format: "esm",
  platform: "node",
  target: "node20",
  logLevel: "warning",
};

/** @type {import("esbuild").BuildOptions} */
const bundled = {
  ...common,
  entryNames: "[name]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  splitting: true,
  packages: "external",
};

const sources = listSources("src");
const modules = sources.filter((path) => !isTest(path) && !scripts.includes(path) && !isOfPage(path));
const others = [
  ...sources.filter((path) => isTest(path) || isOfPage(path)).map((path) => `src/${path}`),
  ...["test", "bench", "examples", "scripts"].flatMap((folder) =>
    listSources(folder).map((path) => `${folder}/${path}`),
  ),
];

for (const folder of ["lib", "modules"]) rmSync(join(root, "dist", folder), { recursive: true, force: true });
await Promise.all([bundleLibrary(), bundleModules().then(writeModuleFiles), compileOthers()]);

async function bundleLibrary() {
  const entries = ["index", "internals", ...scripts];
  const outdir = join(root, "dist/lib");
  await build({ ...bundled, entryPoints: entries.map((entry) => join(root, `src/${entry}.ts`)), outdir });
  restoreNames(outdir);
}

/**
 * The entry "all" exports each module as a namespace, named by its position in `modules`. It is CommonJS: in
 * Node 20, V8's code cache is available for a `vm.Script`, but not for ES modules (scripts/load-all.mjs). The entry points of threads and
 * processes are small, so they stay ES modules.
 */
async function bundleModules() {
  const outdir = join(root, "dist/modules");
  const mapped = { sourcemap: /** @type {const} */ ("linked"), sourcesContent: false };
  const exportAll = modules.map((path, index) => `export * as m${index} from "./${path}.ts";\n`).join("");
  await Promise.all([
    build({
      ...bundled,
      ...mapped,
      outdir,
      entryPoints: scripts.map((script) => join(root, `src/${script}.ts`)),
    }),
    build({
      ...{ ...common, ...mapped },
      outfile: join(outdir, "all.cjs"),
      format: "cjs",
      bundle: true,
      // A script's `import()` is experimental in Node 20, so it becomes `require()`.
      supported: { "dynamic-import": false },
      // The other packages are JavaScript: compiled code is kept of them too.
      external: ["koffi"],
      stdin: { contents: exportAll, resolveDir: join(root, "src") },
      define: { "import.meta.url": "importMetaUrl" },
      banner: { js: 'const importMetaUrl = require("node:url").pathToFileURL(__filename).href;' },
    }),
  ]);
  restoreNames(outdir);
  const names = modules.map((_, index) => `m${index}`).join(", ");
  writeFileSync(
    join(outdir, "all.js"),
    `import { loadAll } from "./load-all.mjs";\nexport const { ${names} } = loadAll();\n`,
  );
  copyFileSync(join(root, "scripts/load-all.mjs"), join(outdir, "load-all.mjs"));
}

/**
 * Restores the names that the bundler has changed. Class names appear in errors, printed models and records; function names appear in
 * stack traces. esbuild's own option `keepNames` would set the name of a closure each time that it is created.
 *
 * A class that uses its own name becomes `var Tensor = class _Tensor`. Of two functions with one name, the second becomes `cat2`.
 *
 * @param {string} folder
 */
function restoreNames(folder) {
  const files = readdirSync(folder).filter((name) => /\.c?js$/.test(name));
  const codes = new Map(files.map((name) => [join(folder, name), readFileSync(join(folder, name), "utf8")]));
  const exported = new Map(
    [...codes.values()].flatMap((code) =>
      [...code.matchAll(/\b(?<name>\w+): \(\) => (?<local>\w+)|\b(?<local2>\w+) as (?<name2>\w+)/g)].map(
        ({ groups = {} }) => [groups.local ?? groups.local2, groups.name ?? groups.name2],
      ),
    ),
  );
  for (const [path, code] of codes) {
    const classes = [...code.matchAll(/^var (\w+) = class _\1\b/gm)].map(([, name]) => name);
    const inner = new RegExp(`(?<![\\w$.#"'])_(${classes.join("|")})\\b`, "g");
    const functions = [...code.matchAll(/^(?:async )?function\*? (\w+\d)\(/gm)].flatMap(([, local = ""]) => {
      const name = exported.get(local) ?? local;
      return local.startsWith(name) && /^\d+$/.test(local.slice(name.length))
        ? `Object.defineProperty(${local}, "name", { value: "${name}" });\n`
        : [];
    });
    if (classes.length === 0 && functions.length === 0) continue;
    writeFileSync(path, (classes.length === 0 ? code : code.replace(inner, "$1")) + functions.join(""));
  }
}

async function writeModuleFiles() {
  const all = await import(pathToFileURL(join(root, "dist/modules/all.js")).href);
  for (const [index, path] of modules.entries()) {
    const names = Object.keys(all[`m${index}`]);
    writeModule(path, (folder) =>
      names.length === 0
        ? "export {};\n"
        : `import { m${index} } from "${folder}/all.js";\nexport const { ${names.join(", ")} } = m${index};\n`,
    );
  }
  for (const script of scripts)
    writeModule(script, (folder) => `import "${folder}/${basename(script)}.js";\n`);
}

/**
 * @param {string} path
 * @param {(modulesFolder: string) => string} code
 */
function writeModule(path, code) {
  const file = join(root, `dist/src/${path}.js`);
  const folder = relative(dirname(file), join(root, "dist/modules")).split(sep).join("/");
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, code(folder));
}

function compileOthers() {
  return build({
    ...common,
    entryPoints: others.map((path) => join(root, `${path}.ts`)),
    outdir: join(root, "dist"),
    outbase: root,
    sourcemap: "linked",
    sourcesContent: false,
  });
}

/** @param {string} path */
function isTest(path) {
  return path.endsWith(".test");
}

/**
 * The inspector's page runs in a browser, as a bundle of its own (scripts/build-page.mjs). Tests import single modules of it.
 *
 * @param {string} path
 */
function isOfPage(path) {
  return path.startsWith("inspect/page/");
}

/**
 * @param {string} folder
 * @returns {string[]} paths below the folder, without ".ts"
 */
function listSources(folder) {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".d.ts") && !path.includes("node_modules"))
    .map((path) => path.slice(0, -".ts".length).split(sep).join("/"))
    .sort();
}
