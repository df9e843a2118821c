/** Passes as functions from calls to calls. */

import { type Call, Program } from "../../src/compile/program/program.js";
import type { Runtime } from "../../src/runtime/index.js";

/** The calls after an edit of their program. */
export function rewritten(calls: readonly Call[], edit: (program: Program) => void): readonly Call[] {
  const program = new Program(calls);
  edit(program);
  return program.calls;
}

/** A pass that takes and returns calls, and edits a program between. */
export function onCalls<Options extends readonly unknown[]>(
  pass: (runtime: Runtime, program: Program, ...options: Options) => void,
): (runtime: Runtime, calls: readonly Call[], ...options: Options) => readonly Call[] {
  return (runtime, calls, ...options) => rewritten(calls, (program) => pass(runtime, program, ...options));
}
