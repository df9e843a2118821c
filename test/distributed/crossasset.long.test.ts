/**
 * CrossAsset on 2 and 4 ranks of each MPI implementation, without faults and with them: ranks that are killed at drawn moments, that stop,
 * or whose disk is full, and signals to mpirun. The others name the rank and end with an exit code of their own; the resumed run has the bits
 * of one process.
 */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { isProcessAlive } from "../../src/data/index.js";
import { CheckpointStore, readStatus } from "../../src/train/index.js";
import { bitsOf, commandOf, trainAlone, trainOnRanks } from "../support/crossasset-ranks.js";
import { holdfastProgram } from "../support/crossasset-runs.js";
import { makeFolder } from "../support/folders.js";
import { lacksMpi, type MpiName, mpiNames, processWith } from "../support/ranks.js";
import { plainDevice } from "../support/short-process.js";

const epochs = 6;
const seed = Number(process.env["TEST_SEED"] ?? Date.now() % 2 ** 31);
let state = seed;
const below = (count: number): number => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * count);
};

describe(`CrossAsset on ranks, seed ${seed}`, { skip: lacksMpi("openmpi") || lacksMpi("mpich") }, () => {
  let expected: ReturnType<typeof bitsOf>;
  before(async () => {
    const out = join(makeFolder(), "alone");
    await trainAlone({ out, epochs });
    expected = bitsOf(out);
  });

  const finish = async (out: string, mpi: MpiName, size: number, more: readonly string[]): Promise<void> => {
    const { status, output } = await trainOnRanks({ out, epochs, more }, { mpi, size, withinMs: 300_000 })
      .result;
    assert.equal(status, 0, output);
    assert.deepEqual(bitsOf(out), expected);
  };

  for (const mpi of mpiNames)
    for (const size of [2, 4])
      for (const more of [[], ["--shard-optimizer"]])
        test(`${size} ranks of ${mpi} ${more.join()} have the bits of one process`, async () => {
          await finish(join(makeFolder(), "run"), mpi, size, more);
        });

  /** Runs until a rank has a fault, and returns what the ranks print. */
  const disturb = async (
    out: string,
    size: number,
    rank: number,
    fault: (pid: number) => void,
    { events = 12, mpi = "openmpi" as MpiName } = {},
  ): Promise<string> => {
    let isDone = false;
    const ranks = trainOnRanks(
      { out, epochs, more: ["--shard-optimizer", "--rank-timeout", "3s"] },
      {
        ...{ mpi, size, withinMs: 300_000 },
        onOutput: (output) => {
          if (isDone || output.split("\n").length < events) return;
          isDone = true;
          const pid = ranks.processOf(rank);
          if (pid === undefined) return;
          fault(pid);
        },
      },
    );
    return (await ranks.result).output;
  };

  for (const mpi of mpiNames)
    for (let index = 0; index < 20; index++) {
      const [size, events] = [[2, 4][below(2)] ?? 2, 2 + below(30)];
      const rank = below(size);
      const resumed = [1, 2, 4][below(3)] ?? 1;
      test(`rank ${rank} of ${size} of ${mpi} is killed after ${events} lines, and ${resumed} continue`, async () => {
        const out = join(makeFolder(), "run");
        const kill = (pid: number): void => void process.kill(pid, "SIGKILL");
        const output = await disturb(out, size, rank, kill, { events, mpi });
        // It may be killed before the ranks know each other, or after the last step. MPICH may end the others before they can say it.
        if (readStatus(out)?.exitCode === 6)
          assert.match(output, new RegExp(`rank ${rank} .*is lost`, "i"), output);
        const other = mpi === "openmpi" ? "mpich" : "openmpi";
        await finish(out, other, resumed, ["--shard-optimizer"].slice(resumed === 1 ? 1 : 0));
      });
    }

  // Open MPI sends SIGTERM a while after the signal, and kills as long after that. Its own exit code is 1, and MPICH's after SIGINT is 0.
  const ends = [
    ["openmpi", "SIGTERM", [1]],
    ["openmpi", "SIGINT", [1]],
    ["mpich", "SIGTERM", [3]],
    ["mpich", "SIGINT", [0, 3]],
  ] as const;
  for (const [mpi, signal, codes] of ends)
    test(`${signal} to the mpirun of ${mpi} ends all ranks with a checkpoint`, async () => {
      const out = join(makeFolder(), "run");
      let isSent = false;
      const ranks = trainOnRanks(
        { out, epochs: 30 * epochs, more: ["--shard-optimizer"] },
        {
          ...{ mpi, size: 2, withinMs: 300_000, env: { OMPI_MCA_odls_base_sigkill_timeout: "4" } },
          onOutput: (output) => {
            if (isSent || (output.match(/"kind":"checkpoint"/g)?.length ?? 0) < 2) return;
            isSent = true;
            process.kill(ranks.launcher, signal);
          },
        },
      );
      const { status, output } = await ranks.result;
      assert.ok(isSent && codes.some((code) => code === status), `${status} ${output}`);
      for (const rank of [0, 1]) assert.equal(ranks.processOf(rank), undefined);
      const { state, exitCode, step = 0 } = readStatus(out) ?? {};
      assert.deepEqual([state, exitCode], ["stopped", 3], output);
      const { step: saved } = new CheckpointStore(join(out, "checkpoints")).load("latest");
      assert.equal(saved, step);
    });

  test("holdfast launch starts all ranks again from the last checkpoint", async () => {
    const out = join(makeFolder(), "run");
    const [node, args] = commandOf({ out, epochs, more: ["--shard-optimizer"] });
    const mark = `TEST_RANKS=launch ${out}`;
    const child = spawn(
      node,
      [holdfastProgram, "launch", "-n", "2", "--restarts", "2", "--", node, ...args],
      {
        env: { ...process.env, ...plainDevice, TEST_RANKS: `launch ${out}` },
      },
    );
    let output = "";
    let isKilled = false;
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
        if (isKilled || (output.match(/"kind":"checkpoint"/g)?.length ?? 0) < 3) return;
        isKilled = true;
        const ofRank = ["OMPI_COMM_WORLD_RANK=1", "PMI_RANK=1"];
        const pid = ofRank
          .map((variable) => processWith([mark, variable]))
          .find((found) => found !== undefined);
        process.kill(pid ?? assert.fail(output), "SIGKILL");
      });
    const [code] = await once(child, "close");
    assert.equal(code, 0, output);
    assert.match(output, /starting all 2 again, restart 1 of 2/);
    assert.match(output, /"kind":"resumed"/);
    assert.deepEqual(bitsOf(out), expected);
  });

  test("a rank whose disk is full is named, and the run continues with its bits", async () => {
    const out = join(makeFolder(), "run");
    const output = await disturb(out, 2, 1, (pid) => {
      // Its writes of more bytes to a file fail.
      execFileSync("prlimit", ["--pid", String(pid), "--fsize=4096"]);
    });
    assert.match(output, /RANK_LOST: Rank 1 .* has failed: .*rank-1.* can't be written/, output);
    assert.equal(readStatus(out)?.exitCode, 6);
    await finish(out, "mpich", 2, ["--shard-optimizer"]);
  });

  const lacksMount = process.getuid?.() === 0 ? false : "only root can mount a small disk";
  test("a run on a full disk ends with its reason, and continues with its bits on a larger one", {
    skip: lacksMount,
  }, async () => {
    const out = join(makeFolder(), "run");
    mkdirSync(out);
    const mount = (...args: string[]): void => void execFileSync("mount", args, { stdio: "pipe" });
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", out);
    try {
      const more = ["--shard-optimizer"];
      const full = trainOnRanks({ out, epochs, more }, { mpi: "openmpi", size: 2, withinMs: 300_000 });
      const { status, output } = await full.result;
      assert.notEqual(status, 0);
      assert.match(output, /can't be written: .*(ENOSPC|no space left)/i, output);
      mount("-o", "remount,size=256m", out);
      await finish(out, "mpich", 2, more);
    } finally {
      execFileSync("umount", ["--lazy", out]);
    }
  });

  test("a rank that stops is named, and the run continues with its bits", async () => {
    const out = join(makeFolder(), "run");
    const output = await disturb(out, 2, 1, (pid) => {
      process.kill(pid, "SIGSTOP");
      // Its launcher kills it, or waits for it.
      setTimeout(() => isProcessAlive(pid) && process.kill(pid, "SIGKILL"), 15_000);
    });
    assert.match(output, /Rank 1 .* is lost: it has sent nothing for 3s/);
    assert.equal(readStatus(out)?.exitCode, 6);
    await finish(out, "openmpi", 4, []);
  });
});
