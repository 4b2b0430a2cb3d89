export function hush(): void
