/** Runs every action even if one fails, then throws the first failure: for closing and undoing. */
export function runAll(steps: Iterable<() => void>): void {
  const failures: unknown[] = [];
  for (const step of steps) {
    try {
      step();
    } catch (failure) {
      failures.push(failure);
    }
  }
  if (failures.length > 0) throw failures[0];
}
