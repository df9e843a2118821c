/** Compiles the examples, all in one program with this repository's types, and checks them. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import type { Example } from "./examples.js";
import { repositoryRoot } from "./repository.js";

/** The examples as compiled files, in the given order. */
export interface CompiledExamples {
  /** For the types; created at the first access, so that the examples can run in the meantime. */
  readonly program: ts.Program;
  /** The TypeScript file of each example; the compiled one is next to it, see `compiledFile`. */
  readonly files: readonly string[];
  /** Removes the files. */
  remove(): void;
}

/**
 * Writes, checks and compiles the examples. They are inside dist/, below this package's package.json: there
 * `import … from "holdfast"` resolves to this package, for the compiler and for node.
 */
export function compileExamples(examples: readonly Example[]): CompiledExamples {
  const folder = mkdtempSync(join(repositoryRoot, "dist", "documentation-"));
  const options = compilerOptions(folder);
  const files = examples.map(({ code }, index) => {
    const file = join(folder, `example-${index + 1}.mts`);
    writeFileSync(file, code);
    // Not by the program's emit, which would first check every declaration of the program, node's too.
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

/** The JavaScript of a TypeScript file. */
export function compiledFile(file: string): string {
  return file.replace(/\.mts$/, ".mjs");
}

/** The repository's options, without those that only its build needs. */
function compilerOptions(folder: string): ts.CompilerOptions {
  const { config } = ts.readConfigFile(join(repositoryRoot, "tsconfig.json"), ts.sys.readFile);
  return {
    ...ts.parseJsonConfigFileContent(config, ts.sys, repositoryRoot).options,
    // With the build's folders the compiler would resolve "holdfast" to src/ instead of the published files.
    rootDir: folder,
    outDir: folder,
    sourceMap: false,
    // An example may create a value only to show how it is created.
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
