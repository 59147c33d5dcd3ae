"""Optional features, found through entry points. The core never imports them."""
