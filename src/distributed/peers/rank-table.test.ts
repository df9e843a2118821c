/** Which ranks are lost, and how soon: with a clock of the test. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FakeClock } from "../../units/index.js";
import { failureText } from "./failure-text.js";
import type { RankStatus } from "./messages.js";
import { type Check, RankTable } from "./rank-table.js";

const timeoutMs = 10_000;

class Ranks {
  readonly clock = new FakeClock();
  readonly table: RankTable;
  readonly #statuses: RankStatus[];
  readonly #silent = new Set<number>();

  constructor(size: number) {
    this.table = new RankTable(size, timeoutMs, this.clock);
    this.#statuses = Array.from({ length: size }, () => ({ progress: 0, doing: "step 1", sequence: 0 }));
    for (let rank = 0; rank < size; rank++)
      assert.equal(this.table.add({ rank, size, host: `host${rank}`, pid: 100 + rank }), undefined);
  }

  set(rank: number, status: Partial<RankStatus>): void {
    this.#statuses[rank] = { ...this.#statuses[rank]!, ...status };
  }

  silence(rank: number): void {
    this.#silent.add(rank);
  }

  /** Time passes; every rank sends its status, and those that work go on. Returns the first failure with its time. */
  pass(
    ms: number,
    working: readonly number[] = [],
  ): { readonly check: Check; readonly afterMs: number } | undefined {
    for (let passed = 200; passed <= ms; passed += 200) {
      this.clock.advance(200);
      for (const [rank, status] of this.#statuses.entries()) {
        if (working.includes(rank)) this.set(rank, { progress: status.progress + 1 });
        if (!this.#silent.has(rank)) this.table.update(rank, this.#statuses[rank]!);
      }
      const check = this.table.check();
      if (check.ranks.length > 0) return { check, afterMs: passed };
    }
    return undefined;
  }
}

const waiting = (sequence: number, waitsIn = "allGather of 64 bytes") => ({ sequence, waitsIn });

describe("a rank is lost", () => {
  test("if it is silent for longer than the limit, and only once", () => {
    const ranks = new Ranks(3);
    ranks.pass(1000);
    ranks.silence(2);
    assert.equal(ranks.pass(timeoutMs - 400), undefined);
    const found = ranks.pass(1000);
    assert.deepEqual(
      found?.check.ranks.map(({ rank, host, pid }) => [rank, host, pid]),
      [[2, "host2", 102]],
    );
    assert.match(
      failureText(found!.check, 0),
      /^rank 2 \(process 102 on host2\) is lost: it has sent nothing for 10s/,
    );
    assert.equal(ranks.pass(3 * timeoutMs), undefined);
  });

  test("if it does nothing while others wait for it", () => {
    const ranks = new Ranks(3);
    ranks.set(0, waiting(4));
    ranks.set(1, waiting(4));
    ranks.set(2, { sequence: 3, doing: "upload" });
    const found = ranks.pass(2 * timeoutMs);
    assert.ok(found && found.afterMs > timeoutMs && found.afterMs < timeoutMs + 1000, String(found?.afterMs));
    assert.match(
      failureText(found.check, 0),
      /rank 2 .* no progress for 10s while ranks 0, 1 wait for it\. It was last seen upload$/,
    );
  });

  test("not while it works, however long the others wait", () => {
    const ranks = new Ranks(2);
    ranks.set(0, waiting(4));
    const before = ranks.table.progress;
    assert.equal(ranks.pass(10 * timeoutMs, [1]), undefined);
    assert.ok(ranks.table.progress > before, "those that wait can show that they are alive");
    assert.equal(ranks.pass(timeoutMs - 400), undefined);
    assert.deepEqual(
      ranks.pass(1000)?.check.ranks.map(({ rank }) => rank),
      [1],
    );
  });

  test("not if nobody waits for it", () => {
    assert.equal(new Ranks(2).pass(10 * timeoutMs), undefined);
  });

  test("at once if its connection closes without a goodbye", () => {
    const { table } = new Ranks(2);
    assert.equal(table.lose(1, "its process has ended")?.rank, 1);
    assert.equal(table.lose(1, "again"), undefined);
    table.end(0);
    assert.equal(table.lose(0, "its process has ended"), undefined);
    assert.ok(table.hasEnded);
  });

  test("with all others if a collective does not complete though every rank is in it", () => {
    const ranks = new Ranks(2);
    for (const rank of [0, 1]) ranks.set(rank, waiting(7));
    const found = ranks.pass(2 * timeoutMs);
    assert.deepEqual(
      found?.check.ranks.map(({ rank }) => rank),
      [0, 1],
    );
    assert.match(failureText(found!.check, 0), /every rank has been in this collective for 10s/);
  });
});

describe("ranks differ", () => {
  test("if they wait in different collectives, after a second", () => {
    const ranks = new Ranks(2);
    ranks.set(0, waiting(7));
    ranks.set(1, waiting(7, "allToAll of 64 bytes"));
    const found = ranks.pass(timeoutMs);
    assert.equal(found?.check.what, "differ");
    assert.ok(found.afterMs <= 2000, String(found.afterMs));
    assert.match(
      failureText(found.check, 0),
      /different work.* rank 0 \(host0\): waiting in allGather of 64 bytes, its collective 7; rank 1 \(host1\): waiting in allToAll/,
    );
  });

  test("not if a status is older than the others", () => {
    const ranks = new Ranks(2);
    for (const rank of [0, 1]) ranks.set(rank, waiting(7));
    ranks.pass(400);
    ranks.silence(1);
    ranks.set(0, waiting(8));
    assert.equal(ranks.pass(timeoutMs - 1000), undefined);
    assert.equal(ranks.pass(2000)?.check.what, "lost");
  });

  test("not while they go on", () => {
    const ranks = new Ranks(2);
    for (let step = 1; step < 50; step++) {
      ranks.set(step % 2, waiting(step));
      assert.equal(ranks.pass(400, [0, 1]), undefined);
    }
  });
});

test("a rank is rejected that is there already, or counts other ranks", () => {
  const { table } = new Ranks(2);
  const identity = { size: 2, host: "other", pid: 7 };
  assert.match(table.add({ ...identity, rank: 1 }) ?? "", /rank 1 is already there: process 101 on host1/);
  assert.match(table.add({ ...identity, rank: 1, size: 3 }) ?? "", /one of 3 ranks, and rank 0 as one of 2/);
  assert.match(table.add({ ...identity, rank: 2 }) ?? "", /no rank 2 of 2/);
});

test("missing ranks are known", () => {
  const clock = new FakeClock();
  const table = new RankTable(4, timeoutMs, clock);
  table.add({ rank: 2, size: 4, host: "a", pid: 1 });
  clock.advance(3000);
  assert.deepEqual(table.missing, { ranks: [0, 1, 3], forMs: 3000 });
  assert.ok(!table.isComplete);
});

test("offers are matched by their order", () => {
  const { table } = new Ranks(2);
  assert.equal(table.offer(0, "plan", 1), undefined);
  assert.equal(table.offer(0, "weights", 2), undefined);
  assert.deepEqual(table.offer(1, "plan", 3), [
    { name: "plan", value: 1 },
    { name: "plan", value: 3 },
  ]);
  assert.deepEqual(
    table.offer(1, "weights", 4)?.map(({ value }) => value),
    [2, 4],
  );
});

describe("a rank that waits for its GPU", () => {
  const onGpu = { waitsIn: "the work of its GPU", waitsForGpu: true };

  test("may wait again and again, and for different work than the others", () => {
    const ranks = new Ranks(2);
    ranks.set(0, { sequence: 3, ...onGpu });
    ranks.set(1, waiting(5, "the exchange of plan"));
    // Rank 0's driver calls return.
    assert.equal(ranks.pass(3 * timeoutMs, [0]), undefined);
  });

  test("is lost with all others if all of them wait for longer than the limit", () => {
    const ranks = new Ranks(2);
    for (const rank of [0, 1]) ranks.set(rank, { sequence: 3 + rank, ...onGpu });
    assert.equal(ranks.pass(timeoutMs - 400), undefined);
    const found = ranks.pass(1000)?.check;
    assert.equal(found?.what, "lost");
    assert.deepEqual(
      found?.ranks.map(({ rank, why }) => [rank, /every rank has waited for its GPU for 10s/.test(why)]),
      [
        [0, true],
        [1, true],
      ],
    );
  });

  test("does different work if another rank waits elsewhere for as long", () => {
    const ranks = new Ranks(2);
    ranks.set(0, { sequence: 3, ...onGpu });
    ranks.set(1, waiting(4, "the exchange of plan"));
    assert.equal(ranks.pass(timeoutMs - 400), undefined);
    assert.equal(ranks.pass(1000)?.check.what, "differ");
  });

  test("is not the one that others wait for: that is the one that does nothing", () => {
    const ranks = new Ranks(3);
    for (const rank of [0, 1]) ranks.set(rank, { sequence: 3, ...onGpu });
    ranks.set(2, { sequence: 3, doing: "upload" });
    ranks.pass(timeoutMs - 400);
    assert.deepEqual(
      ranks.pass(1000)?.check.ranks.map(({ rank }) => rank),
      [2],
    );
  });
});
