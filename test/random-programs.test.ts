/**
 * Random programs over the op table, with branches, views, in-place writes, reuse and dropout, for three
 * steps each: the reference in f64, eager, planned and replayed agree. Programs that have once failed are
 * kept in random-programs-kept.json and run first. TEST_RANDOM_PROGRAMS=N runs that many.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import type { Driver } from "holdfast/internals";
import { linearAlgebra, opTable } from "../src/ops/index.js";
import { GiB } from "../src/units/index.js";
import { openDevice, withDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { fakeHost } from "./support/fake-host.js";
import { checkProgram, noCounts, type ProgramDevices } from "./support/random-programs/check.js";
import { losingLaunches, losingReplays, swappingRecorded } from "./support/random-programs/faults.js";
import { anyProgram } from "./support/random-programs/generate.js";
import { readKept } from "./support/random-programs/kept.js";
import { fromJson, specialLiterals, toJson } from "./support/random-programs/literals.js";
import type { Program } from "./support/random-programs/program.js";
import { pruneProgram } from "./support/random-programs/prune.js";
import { testDevice } from "./support/test-device.js";

// The host's memory is read at every placement, a few times per program: here, from one short file.
const host = fakeHost(4 * GiB, 4 * GiB);
after(() => host.remove());

const direct = { capture: "off", threads: 1, hostRoot: host.root } as const;
const replaying = { ...direct, capture: "on" } as const;
const devices: ProgramDevices = { direct: openDevice(direct), replaying: openDevice(replaying) };

const seed = 20_250_301;
// If kernels compile slowly, a program takes mostly that time.
const minPrograms = { cpu: effort({ quick: 4, thorough: 200 }), emulator: 40, cuda: 100 }[testDevice];
const programCount = Number(process.env["TEST_RANDOM_PROGRAMS"] ?? minPrograms);

const kept = readKept().flatMap(({ note, program }) => (program ? [{ note, program }] : []));

for (const { note, program } of kept) {
  test(`a program that once failed agrees with its reference: ${note}`, () => {
    checkProgram(devices, program, noCounts());
  });
}

test("f64, eager, planned and replayed agree on random programs", (context) => {
  const counts = noCounts();
  const details = fc.check(
    fc.property(anyProgram, (program) => checkProgram(devices, asKept(program), counts)),
    { seed, numRuns: programCount },
  );
  const { programs, illConditioned, special, rejections, instructions } = counts;
  context.diagnostic(
    `${programs} programs; ${illConditioned} not compared with f64; ${special} with literals that f32 can't hold; ` +
      `${rejections} of ${instructions} instructions rejected`,
  );
  if (details.failed) failWith(details);
  assert.ok(programs >= minPrograms, `${programs} programs were run`);
  assert.ok(illConditioned < 0.02 * programs, `${illConditioned} of ${programs} were not compared with f64`);
  // Of a few programs, the share of rejected instructions is a matter of chance.
  const maxShare = effort({ quick: 0.1, thorough: 0.05 });
  assert.ok(
    rejections < maxShare * instructions,
    `${rejections} of ${instructions} instructions were rejected`,
  );
});

test("every op of the table and every special literal is generated", () => {
  const programs: Program[] = [];
  const ops = new Set<string>();
  // Linear algebra needs matrices that are far from singular; its ops have a compiled test of their own.
  const missing = (): string[] => Object.keys(opTable).filter((op) => !ops.has(op) && !(op in linearAlgebra));
  // How many programs it takes to see the rarest op depends on the table.
  for (let round = 0; round < 8 && (round < 2 || missing().length > 0); round++) {
    const some = fc.sample(anyProgram, { seed: seed + round, numRuns: 750 });
    programs.push(...some);
    for (const { instructions } of some)
      for (const instruction of instructions) if ("op" in instruction) ops.add(instruction.op);
  }
  assert.deepEqual(missing(), []);
  const text = toJson(programs.map(({ instructions }) => instructions));
  assert.deepEqual(
    specialLiterals.filter((literal) => !text.includes(toJson(literal))),
    [],
  );
  assert.equal(toJson(fromJson(text)), text);
});

/** The first program of this seed finds every fault. */
const faultSeed = 3;

const faults: Readonly<Record<string, (driver: Driver) => Driver>> = {
  "some replays are lost": losingReplays,
  "some launches are lost": losingLaunches,
  "two launches are swapped in a recorded graph": swappingRecorded,
};

for (const [what, inject] of Object.entries(faults)) {
  test(`random programs detect that ${what}`, () => {
    const failed = withDevice(
      replaying,
      (faulty) => {
        const faultyDevices: ProgramDevices = { ...devices, replaying: faulty };
        const property = fc.property(anyProgram, (program) =>
          checkProgram(faultyDevices, program, noCounts()),
        );
        return fc.check(property, { seed: faultSeed, numRuns: 60, endOnFailure: true }).failed;
      },
      inject,
    );
    assert.ok(failed, "60 programs have found nothing");
  });
}

/** The entry in the file of kept programs. */
function asKept(program: Program): Program {
  return fromJson<Program>(toJson(program));
}

/** Fails with the smallest program, in the format of the file of kept ones. */
function failWith({ counterexample, errorInstance }: fc.RunDetails<[Program]>): never {
  const first = errorInstance as Error;
  const failsAlike = (program: Program): boolean => {
    try {
      checkProgram(devices, program, noCounts());
      return false;
    } catch (error) {
      return (error as Error).name === first.name;
    }
  };
  const [program] = counterexample!;
  const smallest = toJson({ note: "", program: pruneProgram(asKept(program), failsAlike) });
  throw new Error(`${first.message}\nFor random-programs-kept.json, with a note:\n${smallest}`, {
    cause: first,
  });
}
