/** Rank 0 chooses, and the others follow its notes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { type RankLink, SharedChoices } from "./shared-choices.js";

/** The choices of a rank, with what all ranks pass to each exchange: undefined stands for the rank's own value. */
function choicesOf(
  rank: number,
  answers: readonly (readonly unknown[])[],
  stored: readonly [string, string][] = [],
) {
  const store = new Map(stored);
  const choices = new SharedChoices({
    recall: (key) => store.get(key),
    remember: (key, note) => void store.set(key, note),
  });
  const sent: unknown[] = [];
  const link: RankLink = {
    rank,
    exchange<T>(_: string, value: T): readonly T[] {
      const answer = answers[sent.length] ?? [];
      sent.push(value);
      return answer.map((other) => (other === undefined ? value : other)) as T[];
    },
  };
  choices.link(link);
  return { choices, sent, store };
}

test("rank 0 sends the notes that it recalls and makes", () => {
  const { choices, sent } = choicesOf(
    0,
    [[undefined, []]],
    [
      ["old", "1"],
      ["unused", "2"],
    ],
  );
  const made = choices.share("a step", () => {
    assert.equal(choices.isFollowing, false);
    assert.equal(choices.isSharing, true);
    choices.remember("new", "3");
    return choices.recall("old");
  });
  assert.equal(made, "1");
  assert.deepEqual(sent, [
    [
      ["new", "3"],
      ["old", "1"],
    ],
  ]);
  assert.equal(choices.isSharing, false);
});

test("another rank follows these notes, not its own", () => {
  const { choices, store } = choicesOf(
    1,
    [[[["old", "1"]], undefined]],
    [
      ["old", "8"],
      ["own", "9"],
    ],
  );
  choices.share("a step", () => {
    assert.equal(choices.isFollowing, true);
    assert.deepEqual([choices.recall("old"), choices.recall("own")], ["1", undefined]);
  });
  assert.equal(choices.recall("own"), "9");
  assert.equal(store.get("old"), "8");
});

test("a rank without others chooses by itself", () => {
  const choices = new SharedChoices({ recall: () => "1", remember: () => undefined });
  assert.equal(
    choices.share("a step", () => `${choices.isSharing} ${choices.recall("key")}`),
    "false 1",
  );
  assert.equal(choices.decide("a schedule", 2), 2);
  choices.requireSame("captures", ["graph"]);
});

test("rank 0 decides, also for nothing", () => {
  const { choices } = choicesOf(1, [
    [[4], undefined],
    [[], undefined],
  ]);
  assert.deepEqual([choices.decide("a schedule", 2), choices.decide("a schedule", 2)], [4, undefined]);
});

test("the rank that differs is named, with what it has", () => {
  const other = { hash: "other", given: "" };
  const { choices } = choicesOf(0, [
    [undefined, undefined, other],
    [undefined, undefined, ["a"]],
  ]);
  rejects(
    "RANKS_DIFFER",
    () => choices.requireSame("the calls", ["a", "b"]),
    /the calls, at place 2: rank 0 has b, and rank 2 has nothing\. All ranks/,
  );
});

test("what most ranks have counts, and the lines are sent only if the hashes differ", () => {
  const other = { hash: "other", given: "" };
  const { choices, sent } = choicesOf(0, [
    [undefined, undefined],
    [undefined, other, other, { hash: "third", given: "" }],
    [undefined, ["b"], ["b"], ["c"]],
  ]);
  choices.requireSame("the calls", ["a"]);
  assert.equal(sent.length, 1);
  rejects(
    "RANKS_DIFFER",
    () => choices.requireSame("the calls", ["a"]),
    /at place 1: rank 1 has b, and rank 0 has a\. Other ranks that differ: 3\./,
  );
});

test("ranks with other inputs do not compare their work", () => {
  const { choices, sent } = choicesOf(0, [[undefined, { hash: "other", given: "f32 [3]" }]]);
  choices.requireSame("the calls", ["a"], "f32 [4]");
  assert.equal(sent.length, 1);
});
