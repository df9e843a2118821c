/** Compiles the examples, all in one program with this repository's own types, and checks them. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import type { Example } from "./examples.js";
import { repositoryRoot } from "./repository.js";

/** The examples as compiled files, in the order in which they were given. */
export interface CompiledExamples {
  /** For the types; made when it is first asked for, so that the examples can run in the meantime. */
  readonly program: ts.Program;
  /** The TypeScript file of each example; the compiled one lies beside it, see `compiledFile`. */
  readonly files: readonly string[];
  /** Removes the files. */
  remove(): void;
}

/**
 * Writes, checks and compiles the examples. They lie inside dist/, below this package's own package.json: there
 * `import … from "holdfast"` finds this very package, for the compiler and for node alike.
 */
export function compileExamples(examples: readonly Example[]): CompiledExamples {
  const folder = mkdtempSync(join(repositoryRoot, "dist", "documentation-"));
  const options = compilerOptions(folder);
  const files = examples.map(({ code }, index) => {
    const file = join(folder, `example-${index + 1}.mts`);
    writeFileSync(file, code);
    // Not by the program's emit, which would first check every declaration that the program knows, node's too.
    const { outputText } = ts.transpileModule(code, { fileName: file, compilerOptions: options });
    writeFileSync(compiledFile(file), outputText);
    return file;
  });
  let program: ts.Program | undefined;
  return {
    get program() {
      program ??= ts.createProgram(files, options);
      return program;
    },
    files,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** What node runs of a TypeScript file. */
export function compiledFile(file: string): string {
  return file.replace(/\.mts$/, ".mjs");
}

/** The repository's own options, without what only its own build needs. */
function compilerOptions(folder: string): ts.CompilerOptions {
  const { config } = ts.readConfigFile(join(repositoryRoot, "tsconfig.json"), ts.sys.readFile);
  return {
    ...ts.parseJsonConfigFileContent(config, ts.sys, repositoryRoot).options,
    // With the build's own folders the compiler would answer "holdfast" with src/ instead of what is published.
    rootDir: folder,
    outDir: folder,
    sourceMap: false,
    // An example may make something only to show how it is made.
    noUnusedLocals: false,
  };
}

/** The type errors in one file of the program, one text each. */
export function typeProblems(program: ts.Program, file: string): string[] {
  const source = program.getSourceFile(file);
  if (source === undefined) return [`${file} is not part of the program.`];
  return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(
    ({ messageText, start }) => {
      const { line } = source.getLineAndCharacterOfPosition(start ?? 0);
      return `line ${line + 1}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
    },
  );
}
