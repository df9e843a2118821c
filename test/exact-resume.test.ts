/**
 * A training that is killed again and again and resumed from its checkpoint ends with the bits of an
 * uninterrupted one.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { effort } from "./support/effort.js";
import { makeFolder } from "./support/folders.js";
import { plainDevice, shortRunFlags } from "./support/short-process.js";

const program = fileURLToPath(new URL("fixtures/resumed-training.js", import.meta.url));

interface Training {
  readonly folder: string;
  readonly mode: string;
  /** A part of its state that is not restored. */
  readonly without?: string;
}

/** Runs trainings in one process until the last has printed `killAfter` steps, and kills it at once; returns its lines. */
async function run(trainings: readonly Training[], killAfter = Infinity): Promise<string[]> {
  const args = trainings.flatMap(({ folder, mode, without = "" }) => [folder, mode, without]);
  const child = spawn(process.execPath, [...shortRunFlags, program, ...args], {
    ...{ env: { ...process.env, ...plainDevice }, stdio: ["ignore", "pipe", "inherit"] },
  });
  const ended = new Promise<unknown>((done) => child.once("exit", (code, signal) => done(signal ?? code)));
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    const ofLast = lines.slice(lines.findLastIndex(isEnd) + 1);
    if (endsOf(lines).length === trainings.length - 1 && ofLast.length === killAfter) child.kill("SIGKILL");
  }
  const end = await ended;
  assert.ok(end === 0 || end === "SIGKILL", `ended with ${end}`);
  return lines;
}

const isEnd = (line: string): boolean => line.startsWith("end");
const endsOf = (lines: readonly string[]): string[] => lines.filter(isEnd);

// Six batches make an epoch: kills in the middle of one, at its last batch, and across several.
const kills: Readonly<Record<string, readonly number[]>> = {
  eager: effort({ quick: [2], thorough: [2, 4, 9, 10] }),
  compiled: effort({ quick: [12], thorough: [3, 8, 12] }),
};
const modes = Object.keys(kills);

/**
 * Kills a training after the step counts in `kills`, and calls `onKill` after each kill. The first process also runs the training
 * `before` to its end, which saves a process.
 */
async function kill(training: Training, onKill: () => void, before?: Training): Promise<void> {
  let steps = 0;
  for (const [index, killAfter] of (kills[training.mode] ?? []).entries()) {
    const isShared = before && index === 0;
    const lines = await run(isShared ? [before, training] : [training], killAfter);
    const made = isShared ? lines.slice(lines.findIndex(isEnd) + 1) : lines;
    const first = Number(made[0]);
    // It resumed from a checkpoint that is not older than the last printed step.
    assert.ok(first > steps, `step ${first} after ${steps}`);
    steps = Number(made.findLast((line) => !isEnd(line)));
    onKill();
  }
}

describe("a killed training", () => {
  const broken = modes.map((mode) => ({ folder: makeFolder(), mode }));
  const faulty = ["loader", "random"].map((without) => ({ folder: makeFolder(), mode: "eager", without }));
  const straight = modes.map((mode) => ({ folder: makeFolder(), mode }));
  let wholes: readonly string[] = [];
  let ends: readonly string[] = [];

  before(async () => {
    const [eager, compiled] = broken;
    let isFirst = true;
    await kill(eager!, () => {
      // After the first kill, in the middle of an epoch.
      if (isFirst) for (const { folder } of faulty) cpSync(eager!.folder, folder, { recursive: true });
      isFirst = false;
    });
    await kill(compiled!, () => undefined, eager);
    const all = endsOf(await run([...broken, ...faulty, ...straight]));
    assert.equal(all.length, broken.length + faulty.length + straight.length);
    ends = all.slice(0, -straight.length);
    wholes = all.slice(-straight.length);
  });

  for (const [index, mode] of modes.entries()) {
    test(`ends with the same bits as an uninterrupted one, ${mode}`, () => {
      assert.match(wholes[index] ?? "", /^end \d+ [0-9a-f]{64}$/);
      assert.equal(wholes[index]?.split(" ")[1], effort({ quick: "18", thorough: "24" }));
      assert.equal(ends[index], wholes[index]);
      assert.deepEqual(readdirSync(broken[index]!.folder), ["latest.safetensors"]);
    });
  }

  test("red proof: without the loader's position, or without the random state, it ends with other bits", () => {
    for (const [index, { without }] of faulty.entries()) {
      const end = ends[broken.length + index];
      assert.match(end ?? "", /^end/);
      assert.notEqual(end, wholes[0], without);
    }
  });
});
