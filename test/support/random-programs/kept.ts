/** Programs of both kinds that have once failed: test/random-programs-kept.json. */

import type { ModelProgram } from "../random-models/program.js";
import { readRepositoryFile } from "../repository.js";
import { fromJson } from "./literals.js";
import type { Program } from "./program.js";

export interface KeptProgram {
  /** What failed. */
  readonly note: string;
  readonly program?: Program;
  readonly model?: ModelProgram;
}

export function readKept(): readonly KeptProgram[] {
  return fromJson<readonly KeptProgram[]>(readRepositoryFile("test/random-programs-kept.json"));
}
