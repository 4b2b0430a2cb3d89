"""WhatsApp through Meta's official Cloud API: webhooks in, the Graph API out."""
