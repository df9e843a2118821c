/**
 * Sums in one fixed order. The sum of a range of terms is that of its two parts; the first part has a power of two. So ranks that each have
 * a power of two of neighbouring terms can sum their own terms first: the order of all additions stays the same.
 */

/** `terms` must not be empty. */
export function treeSum<T>(terms: readonly T[], add: (a: T, b: T) => T): T {
  const [first] = terms;
  if (first === undefined) throw new Error("a sum of no terms");
  if (terms.length === 1) return first;
  const half = 2 ** Math.floor(Math.log2(terms.length - 1));
  return add(treeSum(terms.slice(0, half), add), treeSum(terms.slice(half), add));
}
