"""What tests share: builders of captures and models, the player, faults to plant, places of files."""
