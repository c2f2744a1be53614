"""What the programs beside this folder share: how they measure, and whom they compare with."""
