/** Chains of calls that wait for each other: two calls as one must make none longer than the longest. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../kernels/index.js";
import { Chains } from "./chains.js";
import { type Node, Order } from "./order.js";

const order = new Order();
const follow = (from: View): { readonly node: Node; readonly made: View } => {
  const made = bufferOf([4]);
  return { node: order.add(elementwise("neg", (value) => term.neg(value!), [from], made)).node, made };
};

/** a → b → c → d, and e → f beside them. */
const [first, other] = [bufferOf([4]), bufferOf([4])];
const a = follow(first);
const b = follow(a.made);
const c = follow(b.made);
const d = follow(c.made);
const e = follow(other);
const f = follow(e.made);

test("calls of two chains can be one as long as what follows on both fits behind it", () => {
  const chains = new Chains(order.nodes);
  const canBeOne = [a, b, c, d].map(({ node }) => !chains.wouldGrow(node, e.node));
  assert.deepEqual(canBeOne, [true, true, true, false], "behind the last there is no place for another");
  assert.ok(!chains.wouldGrow(d.node, f.node));
  assert.ok(chains.wouldGrow(a.node, f.node), "which waits for one that would stand before all");
});

test("with two as one, chains go through both", () => {
  const joined = new Order();
  const nodes = order.nodes.map(({ call }) => joined.add(call).node);
  const [, , third, fourth, fifth, sixth] = nodes as [Node, Node, Node, Node, Node, Node];
  joined.join(third, fifth, third.position);
  const chains = new Chains(joined.nodes);
  assert.ok(!chains.wouldGrow(fourth, sixth));
  assert.ok(chains.wouldGrow(third, sixth), "the sixth stands behind the third now");
});
