/** kill -9 while checkpoints are saved: complete checkpoints stay valid, and incomplete files are removed. */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { effort } from "../../test/support/effort.js";
import { makeFolder } from "../../test/support/folders.js";
import { patternedCheckpoint } from "../../test/support/patterned-checkpoint.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { CheckpointStore } from "./checkpoints.js";

const fixture = fileURLToPath(new URL("../../test/fixtures/checkpoint-saver.js", import.meta.url));

/** Every file is valid, the latest is not older than the last completed save, and no incomplete file is left. */
function requireNothingLost(folder: string, returned: number): void {
  const store = new CheckpointStore(folder, { keep: 3 });
  const { checkpoint, rejected } = store.loadLatestValid();
  assert.deepEqual(rejected, []);
  assert.ok(checkpoint && checkpoint.step >= returned, `step ${checkpoint?.step} for ${returned}`);
  for (const { name, step } of store.list()) {
    const { tensors } = store.load(name);
    for (const [tensor, { bytes }] of patternedCheckpoint(step).tensors)
      sameBytes(tensors.get(tensor)!.bytes, bytes, `${tensor} of ${name}`);
  }
  store.prepare();
  assert.deepEqual(
    readdirSync(folder).filter((name) => !name.endsWith(".safetensors")),
    [],
  );
}

/** Folders, and kills in each. */
const [folders, kills] = effort({ quick: [1, 1], thorough: [2, 10] });

/** Kills a process that saves checkpoints, after it has reported this many saves. */
async function killAfter(folder: string, saves: number): Promise<number> {
  const child = spawn(process.execPath, [fixture, folder], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<NodeJS.Signals | null>((done) => child.once("exit", (_, signal) => done(signal)));
  let last = 0;
  let reported = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    last = Number(line);
    reported += 1;
    if (reported === saves) child.kill("SIGKILL");
  }
  assert.equal(await ended, "SIGKILL");
  return last;
}

test("kills at any moment of a save lose no complete checkpoint", async () => {
  const inFolders = Array.from({ length: folders }, async () => {
    const folder = join(makeFolder(), "checkpoints");
    for (let kill = 0; kill < kills; kill++) {
      const returned = await killAfter(folder, 1 + Math.floor(Math.random() * 10));
      requireNothingLost(folder, returned);
    }
  });
  await Promise.all(inFolders);
});

test("a kill in the middle of a write leaves the earlier checkpoints and an ignored temporary file", () => {
  const folder = join(makeFolder(), "checkpoints");
  // A checkpoint takes about 660 writes. One kill is in the third checkpoint, the others are in the first of their process.
  let returned = 0;
  for (const atWrite of effort({ quick: [1500, 3], thorough: [1500, 3, 600] })) {
    const { stdout, signal } = spawnSync(process.execPath, [fixture, folder, String(atWrite)], {
      encoding: "utf8",
    });
    assert.equal(signal, "SIGKILL");
    returned = Number(stdout.trim().split("\n").at(-1)) || returned;
    const temporaries = readdirSync(folder).filter((name) => name.endsWith(".part"));
    assert.equal(temporaries.length, 1, "the kill did not come in the middle of a file");
    requireNothingLost(folder, returned);
  }
});
