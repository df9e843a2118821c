/**
 * Makes calls one that leave most of a GPU idle one by one, and that nobody waits for: gradients of weights, which are read at the
 * step's end, so that they can wait for each other.
 */

import { dependsDirectly, maxFusionDistance, type Node, Order } from "../program/dependency-graph.js";
import { type Call, latestPhase, type Work } from "../program/program.js";

/** Which calls become one. */
export interface Grouping<Problem> {
  /** What a call works on, if it leaves most of the device idle and can go together with others. */
  problemOf(call: Call): Problem | undefined;
  /** Can one launch do these? */
  isPossible(problems: readonly Problem[]): boolean;
  /** Do these keep the device busy, so that they need no more company? */
  isEnough(problems: readonly Problem[]): boolean;
  workOf(problems: readonly Problem[]): Work;
}

interface Group<Problem> {
  readonly problems: readonly Problem[];
  readonly calls: readonly Call[];
}

export function groupCalls<Problem>(calls: readonly Call[], grouping: Grouping<Problem>): readonly Call[] {
  const order = new Order();
  const groups = new Map<Node, Group<Problem>>();

  /** Joins the latest group that takes the problem. */
  const join = (node: Node, own: Group<Problem>): boolean => {
    for (const [other, group] of [...groups].reverse()) {
      const problems = [...group.problems, ...own.problems];
      if (grouping.isEnough(group.problems) || !grouping.isPossible(problems)) continue;
      // Two nodes may stand as one though the second waits for the first; problems of one launch may not.
      if (dependsDirectly(node, other)) continue;
      const place =
        node.position - other.position > maxFusionDistance ? undefined : order.fusionPosition(other, node);
      if (place === undefined) continue;
      order.join(other, node, place);
      groups.set(other, { problems, calls: [...group.calls, ...own.calls] });
      return true;
    }
    return false;
  };

  for (const call of letWait(calls, (one) => grouping.problemOf(one) !== undefined)) {
    const { node } = order.add(call);
    const problem = grouping.problemOf(call);
    if (problem === undefined) continue;
    const own = { problems: [problem], calls: [call] };
    if (!join(node, own)) groups.set(node, own);
  }
  return order.nodes.map((node) => {
    const group = groups.get(node);
    if (!group || group.calls.length < 2) return node.call;
    const op = [...new Set(group.calls.map((call) => call.op))].join(" + ");
    return { op, phase: latestPhase(group.calls), work: grouping.workOf(group.problems) };
  });
}

/** The program with what follows on such calls moved to where it is first needed: it would hold them to their place. */
function letWait(calls: readonly Call[], isSuch: (call: Call) => boolean): readonly Call[] {
  const order = new Order();
  const nodes = calls.map((call) => order.add(call).node);
  for (const node of nodes.toReversed()) {
    if (![...node.before].some(({ call }) => isSuch(call)) || isSuch(node.call)) continue;
    const needed = Math.min(...[...node.behind].map(({ position }) => position));
    if (Number.isFinite(needed)) node.position = needed - 0.5;
  }
  return nodes.sort((a, b) => a.position - b.position).map(({ call }) => call);
}
