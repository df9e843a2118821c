/** What is published is what should be: the library and the command, its licence, and nothing of the workshop. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test from "node:test";
import { formatBytes, MiB } from "../src/units/index.js";
import { readRepositoryFile, repositoryRoot } from "./support/repository.js";

/** What is used of the report that `npm pack --json` prints. */
interface PackReport {
  readonly size: number;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

const packedSizeLimit = 2 * MiB;

/** A package registry's address: its host starts with that word by custom. */
const registryHost = /\bregistry\.[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|org|net|io|dev|cn|local|internal)\b/i;

function run(command: string, ...args: string[]): string {
  const options = { cwd: repositoryRoot, encoding: "utf8", stdio: "pipe" } as const;
  return execFileSync(command, args, options);
}

function packReport(): PackReport {
  const [report] = JSON.parse(run("npm", "pack", "--dry-run", "--json", "--ignore-scripts")) as PackReport[];
  return report ?? assert.fail("npm pack reported nothing.");
}

const packed = packReport();

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

test("the package holds the library, its types, the command, the licence and the README", () => {
  const paths = packed.files.map(({ path }) => path);
  for (const path of ["index.js", "index.d.ts", "cli/main.js"])
    assert.ok(paths.includes(`dist/src/${path}`), path);
  for (const path of ["LICENSE", "README.md", "package.json"]) assert.ok(paths.includes(path), path);
});

test("the package holds no tests and nothing that is not the library", () => {
  const beside = ["LICENSE", "README.md", "CHANGELOG.md", "package.json"];
  const strays = packed.files
    .map(({ path }) => path)
    .filter((path) => /\.test\./.test(path) || !(path.startsWith("dist/src/") || beside.includes(path)));
  assert.deepEqual(strays, []);
});

test("libraries that the page carries along come with their licences", () => {
  const paths = packed.files.map(({ path }) => path);
  const notices = "dist/src/inspect/page/licenses.txt";
  for (const [file, library] of [
    ["preact.js", "preact"],
    ["uplot.js", "uplot"],
  ]) {
    assert.ok(paths.includes(`dist/src/inspect/page/${file}`), file);
    const licence = readRepositoryFile(`node_modules/${library}/LICENSE`).trim();
    assert.match(licence, /Copyright \(c\)/);
    assert.ok(paths.includes(notices) && readRepositoryFile(notices).includes(licence), library);
  }
});

test("the package is small", (t) => {
  const { size, unpackedSize, files } = packed;
  const told = `the package: ${formatBytes(size)} packed, ${formatBytes(unpackedSize)} on disk, ${files.length} files`;
  t.diagnostic(told);
  assert.ok(size <= packedSizeLimit, `${told}; at most ${formatBytes(packedSizeLimit)} packed is allowed`);
});

test("the command's file can be started by the system", () => {
  assert.match(readRepositoryFile("dist/src/cli/main.js"), /^#!\/usr\/bin\/env node\n/);
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

test("a registry's host is told from code that has a registry", () => {
  const host = ["registry", "example", "org"].join(".");
  assert.match(`"resolved": "https://${host}/koffi/-/koffi-3.tgz"`, registryHost);
  assert.doesNotMatch("registry.kernels.find(name); registry.size", registryHost);
});
