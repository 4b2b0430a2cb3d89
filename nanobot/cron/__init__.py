"""When things are due: schedules as pure values."""
