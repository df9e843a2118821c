/** Removes everything from a failing program that the failure does not need. */

import type { Instruction, Program } from "./program.js";

/** The result has nothing that could be removed; a missing value removes only its dependents. */
export function pruneProgram(program: Program, fails: (program: Program) => boolean): Program {
  let left = program;
  const tryOut = (smaller: Program): void => {
    if (fails(smaller)) left = smaller;
  };
  tryOut({ ...left, leftOut: [] });
  for (const instruction of program.instructions.toReversed()) tryOut(withoutInstruction(left, instruction));
  for (const result of program.results)
    tryOut({ ...left, results: left.results.filter((name) => name !== result) });
  for (const input of program.inputs)
    tryOut({ ...left, inputs: left.inputs.filter((candidate) => candidate !== input) });
  tryOut({ ...left, feeds: [] });
  tryOut({ ...left, inModule: false });
  tryOut({ ...left, without: [] });
  return left;
}

function withoutInstruction(program: Program, instruction: Instruction): Program {
  const index = program.instructions.indexOf(instruction);
  return {
    ...program,
    instructions: program.instructions.toSpliced(index, 1),
    leftOut: program.leftOut.flatMap((position) =>
      position === index ? [] : position > index ? position - 1 : position,
    ),
  };
}
