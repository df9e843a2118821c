/** Runs all actions even if one fails, then throws the first failure: for closing and undoing. */
export function runAll(actions: Iterable<() => void>): void {
  const failures: unknown[] = [];
  for (const action of actions) {
    try {
      action();
    } catch (failure) {
      failures.push(failure);
    }
  }
  if (failures.length > 0) throw failures[0];
}
