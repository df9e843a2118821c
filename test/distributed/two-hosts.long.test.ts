/**
 * CrossAsset on two hosts whose network delays packets by 10 ms and loses 1 % of them: the bits of one process. If the network is cut, both
 * ranks say so and end, and the run continues.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { readRanks } from "../../src/train/index.js";
import { bitsOf, commandOf, trainAlone } from "../support/crossasset-ranks.js";
import { makeFolder } from "../support/folders.js";
import { lacksMpi } from "../support/ranks.js";
import { plainDevice } from "../support/short-process.js";
import { lacksTwoHosts, TwoHosts } from "../support/two-hosts.js";

const epochs = 3;
const link = { delayMs: 10, lossPercent: 1 } as const;

describe("two hosts", { skip: lacksMpi("openmpi") || lacksTwoHosts() }, () => {
  let expected: ReturnType<typeof bitsOf>;
  before(async () => {
    const out = join(makeFolder(), "alone");
    await trainAlone({ out, epochs });
    expected = bitsOf(out);
  });

  /** Runs a rank on each host, and returns what they print. */
  async function train(
    hosts: TwoHosts,
    out: string,
    {
      more = [],
      onOutput,
    }: { readonly more?: readonly string[]; readonly onOutput?: (all: string) => void } = {},
  ): Promise<{ readonly status: number | null; readonly output: string }> {
    const [node, args] = commandOf({ out, epochs, more: ["--shard-optimizer", ...more] });
    const [program, all] = hosts.command([node, ...args]);
    const child = spawn(program, all, {
      env: { ...process.env, ...plainDevice },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 300_000,
      killSignal: "SIGKILL",
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
        onOutput?.(output);
      });
    const [status] = (await once(child, "close")) as [number | null];
    return { status, output };
  }

  test("a slow network that loses packets changes no bit", async () => {
    const folder = makeFolder();
    const out = join(folder, "run");
    const hosts = await TwoHosts.open(folder, link);
    try {
      const { status, output } = await train(hosts, out);
      assert.equal(status, 0, output);
    } finally {
      const { carried, lost } = await hosts.close();
      assert.ok(carried > 1000 && lost > 0, `${carried} carried, ${lost} lost`);
    }
    assert.deepEqual(bitsOf(out), expected);
    const { ranks } = readRanks(out);
    assert.equal(new Set(ranks.map(({ host }) => host)).size, 2);
  });

  test("a network that is cut ends both ranks, and they continue on a new one", async () => {
    const folder = makeFolder();
    const out = join(folder, "run");
    const hosts = await TwoHosts.open(folder, link);
    let isCut = false;
    try {
      const { status, output } = await train(hosts, out, {
        more: ["--rank-timeout", "3s"],
        onOutput: (all) => {
          if (isCut || (all.match(/"kind":"checkpoint"/g)?.length ?? 0) < 2) return;
          isCut = true;
          // Longer than the ranks wait. Then mpirun can end the rank on the other host.
          hosts.cut(12_000);
        },
      });
      assert.notEqual(status, 0, output);
      for (const rank of [0, 1])
        assert.match(output, new RegExp(`rank ${rank} .*is lost: it has sent nothing for 3s`, "i"), output);
    } finally {
      await hosts.close();
    }
    const again = await TwoHosts.open(folder, link);
    try {
      const { status, output } = await train(again, out);
      assert.equal(status, 0, output);
    } finally {
      await again.close();
    }
    assert.deepEqual(bitsOf(out), expected);
  });
});
