/**
 * TypeScript's compiler. It is a CommonJS module of nine megabytes: an `import` would search it for the names that it exports, which
 * takes a second.
 */

import { createRequire } from "node:module";
import type * as typescript from "typescript";

export const ts = createRequire(import.meta.url)("typescript") as typeof typescript;

export declare namespace ts {
  type CompilerOptions = typescript.CompilerOptions;
  type Declaration = typescript.Declaration;
  type Node = typescript.Node;
  type Program = typescript.Program;
  type SourceFile = typescript.SourceFile;
  type Symbol = typescript.Symbol;
}
