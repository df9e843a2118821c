/** Both kinds of random programs behind one interface: how they are generated, checked and reduced. */

import type fc from "fast-check";
import type { Device } from "holdfast";
import { checkProgram, noCounts, type ProgramDevices } from "../random-programs/check.js";
import { anyProgram } from "../random-programs/generate.js";
import type { Program } from "../random-programs/program.js";
import { pruneProgram } from "../random-programs/prune.js";
import { checkModel, noModelCounts } from "./check.js";
import { anyModelProgram } from "./generate.js";
import type { ModelProgram } from "./program.js";
import { pruneModel } from "./prune.js";

export type Precision = "f32" | "tf32" | "bf16";

export interface KindDevices extends ProgramDevices {
  /** Runs references in f32. */
  readonly cpu: Device;
  readonly precision: Precision;
}

/** One kind of programs on these devices. */
export interface ProgramKind<P> {
  readonly any: fc.Arbitrary<P>;
  check(program: P): void;
  prune(program: P, fails: (program: P) => boolean): P;
  /** The counts so far, as plain data. */
  counts(): Readonly<Record<string, unknown>>;
}

export function opPrograms(devices: KindDevices): ProgramKind<Program> {
  const counts = noCounts();
  return {
    any: anyProgram,
    check: (program) => checkProgram(devices, program, counts),
    prune: pruneProgram,
    counts: () => ({ ...counts, ops: counts.ops.size }),
  };
}

export function modelPrograms({ replaying: device, cpu, precision }: KindDevices): ProgramKind<ModelProgram> {
  const counts = noModelCounts();
  return {
    any: anyModelProgram(),
    check: (program) => checkModel({ device, cpu, precision }, program, counts),
    prune: pruneModel,
    counts: () => ({ ...counts, names: Object.fromEntries([...counts.names].sort()) }),
  };
}
