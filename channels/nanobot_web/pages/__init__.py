"""The pages: each module has the routes of one, and renders templates of its name."""
