/** How far the clocks of ranks are apart, so that their records can be put on one time axis. */

const rounds = 10;

/** When a rank began an exchange, and when it had the values of all, by its own clock. */
type Times = readonly [begun: number, ended: number];

/**
 * By how many milliseconds each rank's clock is ahead of rank 0's; 0 if the difference can't be told from none. No rank ends an exchange
 * before every rank has begun it: that bounds the difference on both sides. All ranks call it.
 */
export function clockOffsets(
  world: { exchange<T>(name: string, value: T): readonly T[] },
  now: () => number = Date.now,
): readonly number[] {
  let own: Times | null = null;
  const bounds: { readonly min: number; readonly max: number }[] = [];
  for (let round = 0; round < rounds; round++) {
    const begun = now();
    const times: readonly (Times | null)[] = world.exchange<Times | null>("its clock", own);
    own = [begun, now()];
    const [first] = times;
    for (const [rank, other] of times.entries()) {
      const { min, max } = bounds[rank] ?? { min: Number.NEGATIVE_INFINITY, max: Number.POSITIVE_INFINITY };
      if (first && other)
        bounds[rank] = { min: Math.max(min, other[0] - first[1]), max: Math.min(max, other[1] - first[0]) };
    }
  }
  return bounds.map(({ min, max }) => (min <= 0 && max >= 0 ? 0 : (min + max) / 2));
}
