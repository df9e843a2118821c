/** The constants have the values of NVIDIA's headers. */

import assert from "node:assert/strict";
import test from "node:test";
import { findFalseClaims, type HeaderClaim, whyNoHeader } from "../../../test/support/cuda-headers.js";
import { constantGroups } from "./constants.js";

type Groups = Readonly<Record<string, Readonly<Record<string, number>>>>;

function claimsOf(groups: Groups): HeaderClaim[] {
  return Object.entries(groups).flatMap(([beginning, numbers]) =>
    Object.entries(numbers).map(([name, value]) => ({
      holds: `static_cast<unsigned long long>(${beginning}${name}) == ${value}ull`,
      otherwise: `${beginning}${name} is not ${value}`,
    })),
  );
}

for (const [header, groups] of Object.entries<Groups>(constantGroups)) {
  test(`every constant equals that of ${header}`, { skip: whyNoHeader(header) ?? false }, () => {
    assert.deepEqual(findFalseClaims({ header, claims: claimsOf(groups) }), []);
  });
}

test("red proof: a wrong constant is detected", { skip: whyNoHeader("cuda.h") ?? false }, () => {
  const claims = claimsOf({ CU_DEVICE_ATTRIBUTE_: { INTEGRATED: 19, WARP_SIZE: 10 } });
  assert.deepEqual(findFalseClaims({ header: "cuda.h", claims }), [
    "CU_DEVICE_ATTRIBUTE_INTEGRATED is not 19",
  ]);
});
