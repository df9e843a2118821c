/** Division by numbers that are known at launch: the host computes the multiplier. */

import type { Parameter } from "../../../driver/index.js";

/** C++: `Divisor`, for dividends below 2³¹. */
export const declareDivisor = `// Granlund and Montgomery: n / divisor = (high 32 bits of n · magic + n) >> shift, for n < 2^31.
struct Divisor {
  unsigned divisor, magic, shift;
  __device__ __forceinline__ unsigned divide(unsigned n) const { return (__umulhi(n, magic) + n) >> shift; }
};`;

/** C++: the divisor of this name from its parameters. */
export const constructDivisor = (name: string): string =>
  `const Divisor ${name}{${name}Divisor, ${name}Magic, ${name}Shift};`;

export function divisorParameters(names: readonly string[]): Readonly<Record<string, Parameter>> {
  return Object.fromEntries(
    names.flatMap((name) =>
      ["Divisor", "Magic", "Shift"].map((part): [string, Parameter] => [`${name}${part}`, "u32"]),
    ),
  );
}

export function divisorArguments(divisors: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(divisors).flatMap(([name, value]) => {
      const divisor = Math.max(1, value);
      const shift = Math.ceil(Math.log2(divisor));
      const magic = (2n ** 32n * (2n ** BigInt(shift) - BigInt(divisor))) / BigInt(divisor) + 1n;
      return [
        [`${name}Divisor`, divisor],
        [`${name}Magic`, Number(magic)],
        [`${name}Shift`, shift],
      ];
    }),
  );
}
