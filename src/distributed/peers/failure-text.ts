/** What a rank says when the ranks can't go on. */

import type { Failure, LostRank } from "./messages.js";

const maxShown = 8;

/** A sentence without its full stop. `own`: the rank that says it. */
export function failureText(
  { what, ranks }: { readonly what: Failure; readonly ranks: readonly LostRank[] },
  own: number,
): string {
  const states = ranks.slice(0, maxShown).map(({ rank, host, doing }) => `rank ${rank} (${host}): ${doing}`);
  if (what === "differ")
    return `the ranks do different work, because their programs or data differ. ${states.join("; ")}`;
  const others = ranks.filter(({ rank }) => rank !== own);
  const [first, ...more] = others.length > 0 ? others : ranks;
  if (!first) return "a rank is lost";
  const { rank, host, pid, why, doing } = first;
  const named = rank === own ? "this rank" : `rank ${rank} (process ${pid} on ${host})`;
  const alike =
    more.length > 0
      ? `. Also lost: ${more
          .slice(0, maxShown)
          .map((other) => `rank ${other.rank}`)
          .join(", ")}`
      : "";
  return `${named} is lost: ${why}. It was last seen ${doing}${alike}`;
}
