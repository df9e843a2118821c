/** Which ranks a chart shows. */

import type { RankLine } from "../wire.js";

/** More lines can't be told apart. */
const maxLines = 8;

/** All ranks, or those with the most own work, in their order. */
export function chartedRanks(ranks: readonly RankLine[]): readonly RankLine[] {
  const workOf = ({ ownMs, stepMs }: RankLine): number => ownMs ?? stepMs ?? 0;
  const chosen = new Set([...ranks].sort((a, b) => workOf(b) - workOf(a)).slice(0, maxLines));
  return ranks.filter((rank) => chosen.has(rank));
}
