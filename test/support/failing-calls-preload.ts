/**
 * For `node --import`: injects the fault in the variable TEST_FAULT, which is JSON, into the program that is
 * loaded after this.
 */

import { type Fault, withFault } from "./failing-calls.js";

const fault = JSON.parse(process.env["TEST_FAULT"] ?? "{}") as Fault;
await new Promise<void>((isInPlace) => {
  // It stays for the life of the process.
  void withFault(fault, () => {
    isInPlace();
    return new Promise(() => undefined);
  });
});
