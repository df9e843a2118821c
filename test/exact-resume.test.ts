/**
 * A training that is killed again and again and resumed from its checkpoint ends with the bits of an
 * uninterrupted one.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeFolder } from "./support/folders.js";

const program = fileURLToPath(new URL("fixtures/resumed-training.js", import.meta.url));

/** Runs the program until it has printed `steps` steps, and kills it at once; returns its lines. */
async function run(folder: string, mode: string, killAfter = Infinity, without = ""): Promise<string[]> {
  const child = spawn(process.execPath, [program, folder, mode, without], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise<unknown>((done) => child.once("exit", (code, signal) => done(signal ?? code)));
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    if (lines.length === killAfter) child.kill("SIGKILL");
  }
  const end = await ended;
  assert.ok(end === 0 || end === "SIGKILL", `ended with ${end}`);
  return lines;
}

// Six batches make an epoch: kills in the middle of one, at its last batch, and across several.
const kills = { eager: [2, 4, 9], compiled: [3, 8] } as const;

for (const [mode, killAfters] of Object.entries(kills)) {
  test(`a killed training ends with the same bits as an uninterrupted one, ${mode}`, async () => {
    const [whole, broken] = [makeFolder(), makeFolder()];
    const straight = (await run(whole, mode)).at(-1);
    assert.match(straight ?? "", /^end 24 [0-9a-f]{64}$/);
    let steps = 0;
    for (const killAfter of killAfters) {
      const lines = await run(broken, mode, killAfter);
      const first = Number(lines[0]);
      // It resumed from a checkpoint that is not older than the last printed step.
      assert.ok(first > steps, `step ${first} after ${steps}`);
      steps = Number(lines.at(-1)?.startsWith("end") ? lines.at(-2) : lines.at(-1));
    }
    assert.equal((await run(broken, mode)).at(-1), straight);
    assert.deepEqual(readdirSync(broken), ["latest.safetensors"]);
  });
}

test("red proof: without the loader's position, or without the random state, it ends with other bits", async () => {
  const straight = (await run(makeFolder(), "eager")).at(-1);
  for (const without of ["loader", "random"]) {
    const broken = makeFolder();
    await run(broken, "eager", 3);
    const end = (await run(broken, "eager", Infinity, without)).at(-1);
    assert.match(end ?? "", /^end/);
    assert.notEqual(end, straight, without);
  }
});
