"""WhatsApp as a linked device: a helper program in Node.js, and the adapter's side of it."""
