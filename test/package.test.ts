/**
 * The published package: the library, the command, the guides, the examples and the licence, and nothing
 * else.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, posix, relative, sep } from "node:path";
import test from "node:test";
import { gzipSync } from "node:zlib";
import { formatBytes, MiB } from "../src/units/index.js";
import { effort, isThorough } from "./support/effort.js";
import { relativeLinks } from "./support/markdown.js";
import { readRepositoryFile, repositoryRoot } from "./support/repository.js";

/** The package: its size in bytes, packed and on disk, and its files. */
interface Packed {
  readonly size: number;
  readonly unpackedSize: number;
  readonly paths: readonly string[];
}

const packedSizeLimit = 2.5 * MiB;

/** A package registry's address: its host starts with that word by custom. */
const registryHost = /\bregistry\.[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|org|net|io|dev|cn|local|internal)\b/i;

function run(command: string, ...args: string[]): string {
  const options = { cwd: repositoryRoot, encoding: "utf8", stdio: "pipe" } as const;
  return execFileSync(command, args, options);
}

/** What npm would publish. */
function packWithNpm(): Packed {
  const [report] = JSON.parse(run("npm", "pack", "--dry-run", "--json", "--ignore-scripts")) as (Omit<
    Packed,
    "paths"
  > & { readonly files: readonly { readonly path: string }[] })[];
  const { size, unpackedSize, files } = report ?? assert.fail("npm pack reported nothing.");
  return { size, unpackedSize, paths: files.map(({ path }) => path) };
}

/** npm packs these always. */
const alwaysPacked = ["LICENSE", "README.md", "package.json"];

/** Whether the patterns of a manifest's `files` name a path. Later patterns count more. */
function isListed(path: string, patterns: readonly string[]): boolean {
  const last = patterns.findLast((pattern) => {
    const parts = pattern.replace(/^!/, "").split(/(\*\*\/|\*)/);
    const texts = parts.map((part) =>
      part === "**/" ? "(?:.*/)?" : part === "*" ? "[^/]*" : part.replaceAll(".", "\\."),
    );
    return new RegExp(`^${texts.join("")}(?:/|$)`).test(path);
  });
  return last !== undefined && !last.startsWith("!");
}

/** What the manifest lists, without npm, which takes seconds. It is compressed a little less than by npm. */
function packByManifest(): Packed {
  const { files } = JSON.parse(readRepositoryFile("package.json")) as { files: readonly string[] };
  const folders = new Set(files.map((pattern) => pattern.replace(/^!/, "").split("/")[0] ?? ""));
  const found = [...folders].flatMap(listFiles).filter((path) => isListed(path, files));
  const paths = [...alwaysPacked, ...found];
  const contents = paths.map((path) => readFileSync(join(repositoryRoot, path)));
  const all = Buffer.concat(contents);
  return { size: gzipSync(all, { level: 6 }).length, unpackedSize: all.length, paths };
}

/** The files in a folder of the repository, or the file itself. */
function listFiles(name: string): string[] {
  if (statSync(join(repositoryRoot, name)).isFile()) return [name];
  return readdirSync(join(repositoryRoot, name), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(repositoryRoot, join(entry.parentPath, entry.name)).replaceAll(sep, "/"));
}

const packed = effort({ quick: packByManifest, thorough: packWithNpm })();
const packedPaths = packed.paths;

/** Every file that is or would be tracked; undefined outside a git checkout. */
function trackedFiles(): string[] | undefined {
  try {
    const list = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate");
    const deleted = new Set(run("git", "ls-files", "--deleted").split("\n"));
    return list.split("\n").filter((path) => path !== "" && !deleted.has(path));
  } catch {
    return undefined;
  }
}

test("files are listed by folders and patterns, and later patterns take files out", () => {
  const patterns = ["docs", "!docs/api", "dist/**/*.d.ts", "!dist/**/*.test.d.ts", "NOTES.md"];
  const listed = ["docs/a.md", "docs/b/c.md", "dist/a.d.ts", "dist/src/b.d.ts", "NOTES.md"];
  const others = ["docs/api/a.html", "docs2/a.md", "dist/a.js", "dist/src/b.test.d.ts", "src/NOTES.md"];
  assert.deepEqual(
    [...listed, ...others].filter((path) => isListed(path, patterns)),
    listed,
  );
});

if (isThorough) {
  test("npm packs the files that the manifest lists", () => {
    assert.deepEqual(packByManifest().paths.toSorted(), packedPaths.toSorted());
  });
}

test("the package has the library, its types, the command, the guides, the examples and the licence", () => {
  const paths = ["dist/lib/index.js", "dist/src/index.d.ts", "dist/lib/main.js"];
  const pages = ["LICENSE", "README.md", "CHANGELOG.md", "package.json", "docs/start.md"];
  for (const path of [...paths, ...pages, "examples/spirals.ts", "deploy/pod.yaml"])
    assert.ok(packedPaths.includes(path), path);
});

/** Functions and classes whose names a bundler has changed, such as cat2 or _Tensor; also in namespaces. */
function renamedExports(module: object): string[] {
  return Object.entries(module).flatMap(([key, value]: [string, unknown]) => {
    if (typeof value === "function")
      return value.name !== key && /^_|\d$/.test(value.name) ? [`${key}: ${value.name}`] : [];
    return typeof value === "object" && value !== null ? renamedExports(value) : [];
  });
}

test("functions and classes have the same names as in the sources, for errors and stack traces", async () => {
  const library = (await import(join(repositoryRoot, "dist/lib/index.js"))) as object;
  assert.ok(Object.keys(library).includes("Tensor"));
  assert.deepEqual(renamedExports(library), []);
  const cat2 = (): void => {};
  const changed = { cat: cat2, nn: { Tensor: class _Tensor {} }, round: Math.round };
  assert.deepEqual(renamedExports(changed), ["cat: cat2", "Tensor: _Tensor"]);
});

/** Packed files that belong to no component of the package. */
function straysIn(paths: readonly string[]): string[] {
  const folders = ["dist/lib/", "dist/page/", "dist/src/", "docs/", "examples/", "deploy/"];
  const files = ["LICENSE", "README.md", "CHANGELOG.md", "package.json"];
  const belongs = (path: string): boolean =>
    files.includes(path) || folders.some((folder) => path.startsWith(folder));
  return paths.filter((path) => /\.test\.|^docs\/api\//.test(path) || !belongs(path));
}

test("the package has no tests, no generated API reference and no development files", () => {
  assert.deepEqual(straysIn(packedPaths), []);
  const strays = ["dist/src/index.test.js", "docs/api/index.html", "bench/memory.ts"];
  assert.deepEqual(straysIn(["docs/start.md", ...strays]), strays);
});

/** Links of a page that lead to no packed file. A link to a folder counts if the folder has packed files. */
function linksOutside(page: string, markdown: string): string[] {
  return relativeLinks(markdown).filter((link) => {
    const target = posix.join(posix.dirname(page), link);
    const isFolder = target.endsWith("/");
    return !packedPaths.some((path) => (isFolder ? path.startsWith(target) : path === target));
  });
}

test("the links of the README and of the guides lead to files of the package", () => {
  // docs/internals/ is for readers of the repository, and links to the sources.
  const pages = packedPaths.filter((path) =>
    /^(README|CHANGELOG|docs\/[^/]+|deploy\/README)\.md$/.test(path),
  );
  assert.ok(pages.length > 10, pages.join());
  const broken = pages.flatMap((page) =>
    linksOutside(page, readRepositoryFile(page)).map((link) => `${page} → ${link}`),
  );
  assert.deepEqual(broken, []);
});

test("a link to a file or a folder that is not packed is found", () => {
  const links =
    "[a](../src/index.ts) [b](start.md) [c](../examples/) [d](../bench/) [e](https://example.com)";
  assert.deepEqual(linksOutside("docs/page.md", links), ["../src/index.ts", "../bench/"]);
});

test("the manifest, the lock file and the newest entry of the changelog have the same version", () => {
  const { version } = JSON.parse(readRepositoryFile("package.json")) as { version: string };
  const lock = JSON.parse(readRepositoryFile("package-lock.json")) as { version: string };
  const [, newest] = /^## (\d+\.\d+\.\d+)/m.exec(readRepositoryFile("CHANGELOG.md")) ?? [];
  assert.deepEqual([lock.version, newest], [version, version]);
});

test("libraries that the page contains come with their licences", () => {
  assert.ok(packedPaths.includes("dist/page/main.js"));
  const notices = "dist/page/licenses.txt";
  for (const library of ["preact", "uplot"]) {
    const licence = readRepositoryFile(`node_modules/${library}/LICENSE`).trim();
    assert.match(licence, /Copyright \(c\)/);
    assert.ok(packedPaths.includes(notices) && readRepositoryFile(notices).includes(licence), library);
  }
});

test("the package is small", (t) => {
  const { size, unpackedSize, paths } = packed;
  const text = `the package: ${formatBytes(size)} packed, ${formatBytes(unpackedSize)} on disk, ${paths.length} files`;
  t.diagnostic(text);
  assert.ok(size <= packedSizeLimit, `${text}; at most ${formatBytes(packedSizeLimit)} packed is allowed`);
});

test("the command's file is executable", () => {
  assert.match(readRepositoryFile("dist/lib/main.js"), /^#!\/usr\/bin\/env node\n/);
});

test("the licence is Apache 2.0, in the file and in the manifest", () => {
  assert.match(readRepositoryFile("LICENSE"), /^\s*Apache License\s+Version 2\.0, January 2004/);
  assert.equal((JSON.parse(readRepositoryFile("package.json")) as { license: string }).license, "Apache-2.0");
});

test("the lock file pins contents and records no download addresses", () => {
  const lock = readRepositoryFile("package-lock.json");
  assert.match(lock, /"integrity": "sha512-/);
  assert.doesNotMatch(lock, /"resolved":/);
});

test("no tracked file names a package registry's host", (t) => {
  const files = trackedFiles();
  if (files === undefined) return t.skip("not a git checkout");
  const configured = new URL(run("npm", "config", "get", "registry").trim()).host;
  const naming = files.filter((path) => {
    const text = readRepositoryFile(path);
    return text.includes(configured) || registryHost.test(text);
  });
  assert.deepEqual(naming, []);
});

test("a registry's host is distinguished from code that has a registry", () => {
  const host = ["registry", "example", "org"].join(".");
  assert.match(`"resolved": "https://${host}/koffi/-/koffi-3.tgz"`, registryHost);
  assert.doesNotMatch("registry.kernels.find(name); registry.size", registryHost);
});

/** The specifiers of packages that an entry of dist/lib loads when it is imported. */
function packagesLoadedBy(entry: string): readonly string[] {
  const [files, packages] = [new Set<string>([entry]), new Set<string>()];
  for (const file of files) {
    const code = readRepositoryFile(`dist/lib/${file}`);
    for (const [, specifier = ""] of code.matchAll(/^(?:import|export|\}) ?(?:[^"';]*from )?"([^"]+)";$/gm)) {
      if (specifier.startsWith("./")) files.add(specifier.slice(2));
      // A printed example imports "holdfast".
      else if (specifier !== "holdfast" && !specifier.startsWith("node:")) packages.add(specifier);
    }
  }
  return [...packages].sort();
}

test("importing the library loads no other package, which would make every start slower", () => {
  assert.deepEqual(packagesLoadedBy("index.js"), []);
  assert.deepEqual(packagesLoadedBy("internals.js"), []);
  assert.deepEqual(packagesLoadedBy("main.js"), ["commander"], "the command loads its parser");
});
