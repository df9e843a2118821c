/** Compiles the examples, all in one program with this repository's types, and checks them. */

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { promisify } from "node:util";
import { buildSync } from "esbuild";
import type { Example } from "./examples.js";
import { repositoryRoot } from "./repository.js";
import { ts } from "./typescript.js";

/** The examples as compiled files, in the given order. */
export interface CompiledExamples {
  /**
   * The declarations of these files and of the package's files that they import, not checked. What other
   * packages and the language declare is missing: reading it would take most of the time.
   */
  createProgram(files: readonly string[]): ts.Program;
  /** The TypeScript file of each example; the compiled one, if it runs, is next to it, see `compiledFile`. */
  readonly files: readonly string[];
  /** The type errors of the examples and of the declarations that they use, by file; one text each. */
  readonly typeProblems: Promise<ReadonlyMap<string, readonly string[]>>;
  /** Removes the files. */
  remove(): void;
}

/**
 * Writes and checks the examples, and compiles those that `runs` accepts. They are inside dist/, below this package's package.json: there
 * `import … from "holdfast"` resolves to this package, for the compiler and for node.
 */
export function compileExamples(
  examples: readonly Example[],
  runs: (example: Example) => boolean,
): CompiledExamples {
  const folder = mkdtempSync(join(repositoryRoot, "dist", "documentation-"));
  const files = examples.map(({ code }, index) => {
    const file = join(folder, `example-${index + 1}.mts`);
    writeFileSync(file, code);
    return file;
  });
  buildSync({
    entryPoints: files.filter((_, index) => runs(examples[index]!)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
  });
  return {
    createProgram: (wanted) => createProgram(wanted, folder),
    files,
    typeProblems: check(folder),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** The JavaScript of a TypeScript file. */
export function compiledFile(file: string): string {
  return file.replace(/\.mts$/, ".mjs");
}

/** Options of the examples, instead of those that only the repository's build needs. */
function exampleOptions(folder: string) {
  return {
    // With the build's folders the compiler would resolve "holdfast" to src/ instead of the published files.
    rootDir: folder,
    outDir: folder,
    declaration: false,
    emitDeclarationOnly: false,
    incremental: false,
    noEmit: true,
    // An example may create a value only to show how it is created.
    noUnusedLocals: false,
  };
}

function createProgram(files: readonly string[], folder: string): ts.Program {
  const options = parsedOptions(folder);
  const host = ts.createCompilerHost(options);
  const readFile = host.getSourceFile;
  host.getSourceFile = (file, languageVersion, ...rest) =>
    file.includes("/node_modules/")
      ? ts.createSourceFile(file, "", languageVersion)
      : readFile(file, languageVersion, ...rest);
  return ts.createProgram(files, options, host);
}

function parsedOptions(folder: string): ts.CompilerOptions {
  const { config } = ts.readConfigFile(join(repositoryRoot, "tsconfig.json"), ts.sys.readFile);
  const { compilerOptions } = config as { readonly compilerOptions: object };
  const { options } = ts.parseJsonConfigFileContent({ compilerOptions, files: [] }, ts.sys, repositoryRoot);
  delete options.tsBuildInfoFile;
  delete options.lib;
  return { ...options, ...exampleOptions(folder), noLib: true, types: [] };
}

const diagnostic = /^(?<file>\S.*?)\((?<line>\d+),\d+\): error TS\d+: (?<text>.*)$/;

/**
 * Runs the build's compiler, which checks all files in a second: on one thread and without its garbage
 * collector, which needs the least processor time.
 */
async function check(folder: string): Promise<ReadonlyMap<string, readonly string[]>> {
  const config = {
    extends: relative(folder, join(repositoryRoot, "tsconfig.json")),
    compilerOptions: { ...exampleOptions(folder), tsBuildInfoFile: null },
    include: ["*.mts"],
  };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
  const compiler = join(repositoryRoot, "node_modules/typescript-native/bin/tsc");
  const args = [compiler, "-p", folder, "--pretty", "false", "--singleThreaded"];
  const options = { cwd: repositoryRoot, maxBuffer: 2 ** 26, env: { ...process.env, GOGC: "off" } };
  const { stdout } = await promisify(execFile)(process.execPath, args, options).catch(
    (error: { readonly stdout?: string }) => {
      // The compiler ends with another code than 0 if it has found an error.
      if (!error.stdout) throw error;
      return { stdout: error.stdout };
    },
  );
  const problems = new Map<string, string[]>();
  for (const line of stdout.split("\n").filter((text) => /^\S/.test(text))) {
    const { file, line: number, text } = diagnostic.exec(line)?.groups ?? {};
    if (file === undefined) throw new Error(`The compiler reports: ${line}`);
    const path = join(repositoryRoot, file);
    problems.set(path, [...(problems.get(path) ?? []), `line ${number}: ${text}`]);
  }
  return problems;
}
