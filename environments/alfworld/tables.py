"""What stands in which room, what fits where, and what can be done to it: common sense, as tables.

What lives here: kinds and nothing else. What does not: single rooms and games (`generator.py`). Kinds are written as
game files write them (`ButterKnife`); the task types bear their published names.
"""

from __future__ import annotations

from typing import NamedTuple


class Station(NamedTuple):
    """Where a thing gets into the state that a task asks for."""

    receptacle: str
    verb: str
    ability: str
    """Predicate: the thing can get into it."""
    state: str
    """Predicate: the thing is in it."""


TASKS = {
    "pick": "pick_and_place_simple",
    "look": "look_at_obj_in_light",
    "clean": "pick_clean_then_place_in_recep",
    "heat": "pick_heat_then_place_in_recep",
    "cool": "pick_cool_then_place_in_recep",
    "pick_two": "pick_two_obj_and_place",
}
"""Short name -> name in game data."""

TASK_LISTS = {
    "in_distribution": ("pick", "look", "clean", "heat"),
    "out_of_distribution": ("cool", "pick_two"),
    "all": tuple(TASKS),
}

STATIONS = {
    TASKS["clean"]: Station("SinkBasin", "clean", "cleanable", "isClean"),
    TASKS["heat"]: Station("Microwave", "heat", "heatable", "isHot"),
    TASKS["cool"]: Station("Fridge", "cool", "coolable", "isCool"),
}

ROOMS = {
    TASKS["pick"]: ("Kitchen", "LivingRoom", "Bedroom", "Bathroom"),
    TASKS["look"]: ("LivingRoom", "Bedroom"),
    TASKS["clean"]: ("Kitchen", "Bathroom"),
    TASKS["heat"]: ("Kitchen",),
    TASKS["cool"]: ("Kitchen",),
    TASKS["pick_two"]: ("Kitchen", "LivingRoom", "Bedroom", "Bathroom"),
}
"""Task type -> kinds of room it can be set in."""

FIRST_NUMBER = {"Kitchen": 0, "LivingRoom": 200, "Bedroom": 300, "Bathroom": 400}
"""Room numbers of a kind are this plus 1 to 99."""

OPENABLE = frozenset({"Fridge", "Microwave", "Cabinet", "Drawer", "Safe"})
LAMPS = ("DeskLamp", "FloorLamp")
LAMP_TOPS = ("Desk", "SideTable", "Dresser", "CoffeeTable")
VESSELS = frozenset({"Bowl", "Box", "Cup", "Mug", "Plate", "Pan", "Pot"})

FURNITURE = {
    "Kitchen": {
        "Cabinet": (6, 12),
        "Drawer": (4, 9),
        "CounterTop": (2, 3),
        "StoveBurner": (3, 4),
        "Fridge": (1, 1),
        "Microwave": (1, 1),
        "SinkBasin": (1, 1),
        "GarbageCan": (1, 1),
        "CoffeeMachine": (1, 1),
        "Toaster": (1, 1),
        "DiningTable": (0, 1),
        "Shelf": (0, 3),
    },
    "LivingRoom": {
        "Sofa": (1, 2),
        "ArmChair": (0, 2),
        "CoffeeTable": (1, 1),
        "SideTable": (1, 2),
        "Drawer": (1, 5),
        "Shelf": (1, 4),
        "Cabinet": (0, 2),
        "Dresser": (0, 1),
        "DiningTable": (0, 1),
        "GarbageCan": (1, 1),
        "Safe": (0, 1),
    },
    "Bedroom": {
        "Bed": (1, 1),
        "Desk": (1, 2),
        "Drawer": (2, 6),
        "Shelf": (1, 5),
        "SideTable": (0, 2),
        "Dresser": (0, 1),
        "ArmChair": (0, 1),
        "GarbageCan": (1, 1),
        "LaundryHamper": (0, 1),
        "Safe": (0, 1),
    },
    "Bathroom": {
        "SinkBasin": (1, 2),
        "CounterTop": (1, 1),
        "Cabinet": (2, 4),
        "Drawer": (0, 3),
        "Shelf": (0, 1),
        "Toilet": (1, 1),
        "ToiletPaperHanger": (1, 1),
        "TowelHolder": (1, 2),
        "HandTowelHolder": (1, 2),
        "BathtubBasin": (0, 1),
        "GarbageCan": (1, 1),
    },
}
"""Kind of room -> kind of receptacle -> fewest and most of them."""

RECEPTACLES_IN_ROOM = {"Kitchen": (25, 35), "LivingRoom": (9, 16), "Bedroom": (9, 16), "Bathroom": (9, 16)}

_TABLES = "CounterTop DiningTable SideTable CoffeeTable Desk Dresser"
_EATING = "CounterTop DiningTable SideTable CoffeeTable"
_SEATS = "Sofa ArmChair Bed"
_SMALL = f"{_TABLES} Shelf Drawer"


class Kind(NamedTuple):
    """What is known of a kind of thing."""

    rooms: str
    holders: str
    """Kinds of receptacle that it fits in or on."""
    abilities: str = ""


_FOOD = "cleanable heatable coolable sliceable"
_CROCKERY = f"{_TABLES} Shelf Cabinet SinkBasin"

THINGS = {
    # Kitchen: food, crockery, cutlery, cookware.
    "Apple": Kind("Kitchen", f"{_EATING} Fridge Microwave SinkBasin GarbageCan", _FOOD),
    "Potato": Kind("Kitchen", f"{_EATING} Fridge Microwave SinkBasin GarbageCan", _FOOD),
    "Tomato": Kind("Kitchen", f"{_EATING} Fridge Microwave SinkBasin GarbageCan", _FOOD),
    "Egg": Kind("Kitchen", f"{_EATING} Fridge Microwave SinkBasin GarbageCan", _FOOD),
    "Lettuce": Kind("Kitchen", f"{_EATING} Fridge SinkBasin GarbageCan", "cleanable coolable sliceable"),
    "Bread": Kind("Kitchen", f"{_EATING} Fridge Microwave GarbageCan", "heatable coolable sliceable"),
    "WineBottle": Kind("Kitchen", f"{_TABLES} Cabinet Fridge Shelf GarbageCan", "coolable"),
    "Cup": Kind("Kitchen", f"{_CROCKERY} Fridge Microwave", "cleanable heatable coolable"),
    "Mug": Kind("Kitchen Bedroom", f"{_CROCKERY} Fridge Microwave CoffeeMachine", "cleanable heatable coolable"),
    "Plate": Kind("Kitchen", f"{_CROCKERY} Fridge Microwave", "cleanable heatable coolable"),
    "Bowl": Kind("Kitchen Bedroom", f"{_CROCKERY} Fridge Microwave", "cleanable coolable"),
    "Fork": Kind("Kitchen", f"{_EATING} Drawer SinkBasin", "cleanable"),
    "Spoon": Kind("Kitchen", f"{_EATING} Drawer SinkBasin", "cleanable"),
    "Knife": Kind("Kitchen", f"{_EATING} Drawer SinkBasin", "cleanable"),
    "ButterKnife": Kind("Kitchen", f"{_EATING} Drawer SinkBasin", "cleanable"),
    "Spatula": Kind("Kitchen", f"{_EATING} Drawer SinkBasin", "cleanable"),
    "Ladle": Kind("Kitchen", f"{_EATING} Drawer Cabinet SinkBasin", "cleanable"),
    "Pan": Kind("Kitchen", f"{_EATING} Cabinet Fridge SinkBasin StoveBurner", "cleanable coolable"),
    "Pot": Kind("Kitchen", f"{_EATING} Cabinet Fridge Shelf SinkBasin StoveBurner", "cleanable coolable"),
    "Kettle": Kind("Kitchen", f"{_EATING} Cabinet Shelf SinkBasin StoveBurner", "cleanable"),
    "DishSponge": Kind("Kitchen", f"{_EATING} Cabinet Drawer Shelf SinkBasin GarbageCan", "cleanable"),
    "SaltShaker": Kind("Kitchen", f"{_EATING} Cabinet Drawer Shelf"),
    "PepperShaker": Kind("Kitchen", f"{_EATING} Cabinet Drawer Shelf"),
    # Living room and bedroom.
    "Book": Kind("LivingRoom Bedroom", f"{_SMALL} {_SEATS} Cabinet"),
    "Box": Kind("LivingRoom", f"{_TABLES} Sofa ArmChair Shelf Cabinet"),
    "CD": Kind("Bedroom", f"{_SMALL} Safe GarbageCan"),
    "CellPhone": Kind("LivingRoom Bedroom", f"{_SMALL} {_SEATS} Safe"),
    "CreditCard": Kind("LivingRoom Bedroom", f"{_SMALL} Sofa ArmChair Safe"),
    "KeyChain": Kind("LivingRoom Bedroom", f"{_SMALL} Sofa ArmChair Safe"),
    "Laptop": Kind("LivingRoom Bedroom", f"{_TABLES} {_SEATS}"),
    "Newspaper": Kind("LivingRoom", f"{_SMALL} {_SEATS} Cabinet GarbageCan"),
    "Pillow": Kind("LivingRoom Bedroom", _SEATS),
    "RemoteControl": Kind("LivingRoom", f"{_SMALL} Sofa ArmChair"),
    "Statue": Kind("LivingRoom", f"{_TABLES} Shelf Safe"),
    "Vase": Kind("LivingRoom Kitchen", f"{_TABLES} Shelf Cabinet Safe"),
    "Watch": Kind("LivingRoom Bedroom", f"{_SMALL} Safe"),
    "WateringCan": Kind("LivingRoom", f"{_TABLES} Shelf Cabinet"),
    "AlarmClock": Kind("Bedroom", f"{_TABLES} Shelf"),
    "BaseballBat": Kind("Bedroom", "Bed Desk SideTable"),
    "BasketBall": Kind("Bedroom", "Bed ArmChair Desk Dresser"),
    "Pen": Kind("Bedroom", f"{_SMALL} GarbageCan"),
    "Pencil": Kind("Bedroom", f"{_SMALL} GarbageCan"),
    "TennisRacket": Kind("Bedroom", "Bed Desk Dresser SideTable"),
    # Bathroom.
    "Candle": Kind("Bathroom LivingRoom", f"{_SMALL} Cabinet Toilet"),
    "Cloth": Kind(
        "Bathroom Bedroom",
        f"{_SMALL} Cabinet Toilet BathtubBasin SinkBasin LaundryHamper GarbageCan",
        "cleanable",
    ),
    "HandTowel": Kind("Bathroom", "HandTowelHolder CounterTop Cabinet Drawer SinkBasin BathtubBasin GarbageCan"),
    "Plunger": Kind("Bathroom", "Cabinet Toilet"),
    "SoapBar": Kind(
        "Bathroom", "CounterTop Cabinet Drawer Shelf Toilet SinkBasin BathtubBasin GarbageCan", "cleanable"
    ),
    "SoapBottle": Kind("Bathroom Kitchen", f"{_EATING} Cabinet Drawer Shelf Toilet GarbageCan"),
    "SprayBottle": Kind("Bathroom", "CounterTop Cabinet Drawer Shelf Toilet GarbageCan"),
    "TissueBox": Kind("Bathroom LivingRoom Bedroom", f"{_SMALL} Cabinet Toilet GarbageCan"),
    "ToiletPaper": Kind("Bathroom", "ToiletPaperHanger CounterTop Cabinet Drawer Shelf Toilet GarbageCan"),
    "Towel": Kind("Bathroom", "TowelHolder"),
}


def holders(thing: str) -> frozenset[str]:
    """Return the kinds of receptacle that a kind of thing fits in or on.

    >>> sorted(holders("Pillow"))
    ['ArmChair', 'Bed', 'Sofa']
    """
    return frozenset(THINGS[thing].holders.split())
