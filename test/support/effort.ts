/**
 * How much a test tries: a sample with every `npm test`, and everything with `npm run test:long`, which also
 * runs the files that import this one and sets TEST_EFFORT=all for them.
 */

export const isThorough = process.env["TEST_EFFORT"] === "all";

/** Of two amounts of work, the one for this run. */
export function effort<Amount>({
  quick,
  thorough,
}: {
  readonly quick: Amount;
  readonly thorough: Amount;
}): Amount {
  return isThorough ? thorough : quick;
}
